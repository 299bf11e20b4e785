/* What the subcommands share: options from the library's table, files, errors, exit codes.
 *
 * Functions return an exit code, 0 for success; after a failure they have printed the message. */
#ifndef WEIR_TOOLS_CLI_H
#define WEIR_TOOLS_CLI_H

#include <stdio.h>
#include <weir/weir.h>

typedef struct cli {
  const char *command;
  const char *const *operands; /* the arguments that are no options */
  size_t n_operands;
  bool help; /* --help was given */
  weir_options *options;
} cli;

/* Runs one command line; argv[0] is the name of the program. It can be called again and again: a call leaves nothing
 * that changes the next one. */
int cli_main(int argc, char **argv);

typedef int (*cli_command)(const cli *c);

/* One per file. */
int cli_run(const cli *c);
int cli_lower(const cli *c);
int cli_opt(const cli *c);
int cli_verify(const cli *c);
int cli_why(const cli *c);
int cli_list(const cli *c);
int cli_doctor(const cli *c);
int cli_bound(const cli *c);
int cli_machine(const cli *c);
int cli_fmt(const cli *c);
int cli_completion(const cli *c);
int cli_view(const cli *c);
int cli_draw(const cli *c);

enum { CLI_FAILED = 1, CLI_USAGE = 2, CLI_SYSTEM = 3 };

/* Returns at once if it failed. */
#define CLI_TRY(expr)                                                                              \
  do {                                                                                             \
    int cli_code_ = (expr);                                                                        \
    if (cli_code_ != 0) return cli_code_;                                                          \
  } while (0)
#define CLI_CALL(expr) CLI_TRY(cli_status(expr))

/* 0 if OK; else prints weir_error() and returns the exit code. */
int cli_status(weir_status st);
/* Prints "weir: error: …" and returns CLI_USAGE. */
int cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The default of an option for this command. */
const char *cli_initial(const char *command, const weir_option_info *o);

/* The one FILE operand. */
int cli_file(const cli *c, const char **path);
/* Reads all of standard input, to be freed. NULL: that failed, and the message has been printed. */
char *cli_stdin(size_t *length);
/* Parses a file, or standard input for "-". */
int cli_load(const char *path, weir_module **result);
/* Loads the one file of the command line, finds the fusion that it names, and does something with it. */
int cli_with_fusion(const cli *c, int (*action)(const cli *c, weir_fusion *f));

/* Values of options, whose name and kind must be right. */
const char *cli_text(const cli *c, const char *name, size_t k); /* NULL past the last of a list */
int64_t cli_int(const cli *c, const char *name);
bool cli_flag(const cli *c, const char *name);

/* The commands by number; NULL past the last. */
const char *cli_command_name(size_t i);
const char *cli_command_operands(size_t i);
const char *cli_command_summary(size_t i);

/* The nearest of n words, NULL when none is near. */
const char *cli_nearest(const char *word, const char *const *words, size_t n);
/* Makes shapes of the fusion with the values of -D; destroyed by the caller. */
int cli_shapes(const cli *c, weir_fusion *f, weir_shapes **result);
/* The same, completed if the file or -D gives every extent. */
int cli_known_shapes(const cli *c, weir_fusion *f, weir_shapes **result);
/* Refuses --devices below what the fusion's meshes need. */
int cli_check_devices(const cli *c, const weir_fusion *f);

/* The escape sequence of a colour ("31"; "0" ends it), if the stream is a terminal with colours, NO_COLOR is not
 * set, and no launcher started the process; else "". */
const char *cli_colour(FILE *stream, const char *code);

/* From now on shows the progress of long work on a terminal, unless --quiet. */
void cli_show_progress(const cli *c);

/* Prints `"key": "text"`, as JSON. */
void cli_json_string(const char *key, const char *text);
/* With --json: prints an object that lists the files that the command has written. */
void cli_print_files(const cli *c, const char *const *paths, size_t n);
/* Prints a text; with --json an object that has it as `text`. */
void cli_print(const cli *c, const char *text);

/* Prints the program's notes (weir_program_note()) to standard error, unless --quiet. */
int cli_notes(const cli *c, const weir_program *p);

/* Fills in the command's operands and options from argv, and frees them. */
int cli_parse(int argc, char **argv, const char *command, cli *result);
void cli_free(cli *c);

#endif
