/* The command line: finds the subcommand, prints help, returns the documented exit codes.
 *
 *   0 done   1 a check or verification failed   2 bad usage or bad program   3 the environment failed */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct command {
  const char *name, *operands, *summary;
  cli_command run;
} commands[] = {
    {"run", "FILE", "runs a fusion on files or made-up values, and checks the result", cli_run},
    {"lower", "FILE", "prints the host program a fusion is lowered to", cli_lower},
    {"opt", "FILE", "runs passes and prints the program", cli_opt},
    {"verify", "FILE", "checks a program; with extents known also the order of its plan",
     cli_verify},
    {"why", "FILE NAME...", "says where a mark, a communication or a buffer comes from", cli_why},
    {"draw", "FILE", "draws what devices hold and the host program, as SVG", cli_draw},
    {"bound", "FILE", "says how fast a program could be on a machine, and where more time goes",
     cli_bound},
    {"view", "TRACE.json...", "makes a page of traces and opens it", cli_view},
    {"fmt", "FILE...", "lays out the text of programs; comments stay", cli_fmt},
    {"machine", "show|measure",
     "says how fast this machine is, as choices between programs know it", cli_machine},
    {"doctor", "", "says what this machine has, and how fast it is", cli_doctor},
    {"list", "ops|passes|devices|comms|machines|options", "says what there is", cli_list},
    {"completion", "bash|zsh|fish|vim",
     "prints what a shell needs to complete these commands, or a syntax file", cli_completion},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

const char *cli_command_name(size_t i) { return i < N_COMMANDS ? commands[i].name : NULL; }
const char *cli_command_operands(size_t i) { return i < N_COMMANDS ? commands[i].operands : NULL; }
const char *cli_command_summary(size_t i) { return i < N_COMMANDS ? commands[i].summary : NULL; }

/* ---- help ---- */
static void print_help(void) {
  (void)printf("weir %s: tensor programs whose axes say where and when they run\n\n",
               weir_version());
  for (size_t i = 0; i < N_COMMANDS; i++)
    (void)printf("  weir %-11s%-44s%s\n", commands[i].name, commands[i].operands,
                 commands[i].summary);
  (void)printf(
      "  weir --version | --help | COMMAND --help\n\n"
      "FILE - reads standard input. --opt=v and --opt v are the same; every option is also\n"
      "read from the environment, --print-after from WEIR_PRINT_AFTER.\n"
      "Exit codes: 0 done, 1 a check failed, 2 bad usage or program, 3 the environment "
      "failed.\n");
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
    if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
  return false;
}

static void print_option(const char *command, const weir_option_info *o) {
  char flag[128];
  const char *initial = cli_initial(command, o);
  int n = o->letter ? snprintf(flag, sizeof flag, "-%c, --%s", o->letter, o->name)
                    : snprintf(flag, sizeof flag, "--%s", o->name);
  if (o->placeholder[0] && n > 0 && (size_t)n < sizeof flag)
    (void)snprintf(flag + n, sizeof flag - (size_t)n, "=%s", o->placeholder);
  (void)printf("  %-29s%s%s", flag, strlen(flag) > 27 ? "\n                               " : "  ",
               o->help);
  if (o->repeats) (void)printf("; may be repeated");
  if (initial[0] && o->placeholder[0]) (void)printf(" (default: %s)", initial);
  (void)printf("\n");
}

static void print_command_help(const struct command *c) {
  (void)printf("weir %s %s [OPTIONS]: %s\n", c->name, c->operands, c->summary);
  bool any = false;
  for (size_t i = 0; i < weir_option_count(); i++) {
    weir_option_info o;
    if (weir_option_describe(i, &o) != WEIR_OK || !has_word(o.commands, c->name)) continue;
    if (!any) (void)printf("\n");
    any = true;
    print_option(c->name, &o);
  }
}

/* ---- commands ---- */
static int unknown_command(const char *name) {
  const char *names[N_COMMANDS];
  for (size_t i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
  const char *near = cli_nearest(name, names, N_COMMANDS);
  if (near) return cli_usage("there is no command '%s' (did you mean '%s'?)", name, near);
  return cli_usage("there is no command '%s'; see weir --help", name);
}

static int run_command(const struct command *command, int argc, char **argv) {
  cli c;
  int code = cli_parse(argc, argv, command->name, &c);
  if (code == 0 && c.help) print_command_help(command);
  else if (code == 0) code = command->run(&c);
  cli_free(&c);
  return code;
}

/* `weir help` and `weir help run`. */
static int help_on(int argc, char **argv) {
  if (argc < 3) print_help();
  for (size_t i = 0; argc >= 3 && i < N_COMMANDS; i++) {
    if (strcmp(commands[i].name, argv[2]) != 0) continue;
    print_command_help(&commands[i]);
    return 0;
  }
  return argc < 3 ? 0 : unknown_command(argv[2]);
}

static int dispatch(int argc, char **argv) {
  if (argc < 2) return cli_usage("a command is missing; see weir --help");
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
    print_help();
    return 0;
  }
  if (strcmp(argv[1], "help") == 0) return help_on(argc, argv);
  if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
    (void)printf("weir %s\n", weir_version());
    return 0;
  }
  for (size_t i = 0; i < N_COMMANDS; i++)
    if (strcmp(commands[i].name, argv[1]) == 0)
      return run_command(&commands[i], argc - 2, argv + 2);
  if (argv[1][0] == '-')
    return cli_usage("there is no option %s before a command; see weir --help", argv[1]);
  return unknown_command(argv[1]);
}

/* A command fails if its output could not be written. There is no message if the reader has closed the pipe. */
static int flush_output(int code) {
  bool failed = ferror(stdout) != 0;
  if (fflush(stdout) != 0) failed = true;
  if (!failed) return code;
  if (errno != EPIPE)
    (void)fprintf(stderr, "weir: error: cannot write standard output: %s\n", strerror(errno));
  return code == 0 ? CLI_SYSTEM : code;
}

/* Under a launcher, rank 0 prints for all ranks: others write to nowhere. */
static void print_on_rank_0(void) {
  if (weir_launch_rank() > 0 && !freopen("/dev/null", "w", stdout)) (void)fclose(stdout);
}

int cli_main(int argc, char **argv) {
  print_on_rank_0();
  return flush_output(dispatch(argc, argv));
}
