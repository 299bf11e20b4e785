/* Completion for shells and a syntax file for vim, written from the tables of commands, options and
 * operations: they cannot be out of date. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static FILE *out; /* a text in memory, printed when it is complete */

static bool has_word(const char *words, const char *word) {
  size_t n = strlen(word);
  for (const char *at = words; (at = strstr(at, word)) != NULL; at += n)
    if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
  return false;
}

/* Calls `print` for every option of the command. */
static void each_option(const char *command, void (*print)(const weir_option_info *o)) {
  weir_option_info o;
  for (size_t i = 0; i < weir_option_count(); i++)
    if (weir_option_describe(i, &o) == WEIR_OK && has_word(o.commands, command)) print(&o);
  (void)fprintf(out, " --help");
}

/* Does the placeholder list the values? If so, it is in lower case and has bars. */
static bool lists_words(const char *placeholder) {
  if (!strchr(placeholder, '|')) return false;
  for (const char *c = placeholder; *c; c++)
    if (*c >= 'A' && *c <= 'Z') return false;
  return true;
}

static void print_name(const weir_option_info *o) { (void)fprintf(out, " --%s", o->name); }

static void print_words(const char *barred) {
  for (const char *c = barred; *c; c++) (void)fputc(*c == '|' ? ' ' : *c, out);
}

/* ---- bash ---- */
static void print_values(void) {
  weir_option_info o;
  for (size_t i = 0; i < weir_option_count(); i++) {
    if (weir_option_describe(i, &o) != WEIR_OK || !lists_words(o.placeholder)) continue;
    (void)fprintf(out, "    --%s) COMPREPLY=($(compgen -W '", o.name);
    print_words(o.placeholder);
    (void)fprintf(out, "' -- \"$word\")); return ;;\n");
  }
}

static void print_operands(void) {
  for (size_t i = 0; cli_command_name(i); i++) {
    if (!lists_words(cli_command_operands(i))) continue;
    (void)fprintf(out, "    %s:*) COMPREPLY=($(compgen -W '", cli_command_name(i));
    print_words(cli_command_operands(i));
    (void)fprintf(out, "' -- \"$word\")) ;;\n");
  }
}

static int print_bash(void) {
  (void)fprintf(
      out, "# weir completion bash: source it, or put it into "
           "~/.local/share/bash-completion/completions/weir\n"
           "_weir() {\n"
           "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options\n"
           "  COMPREPLY=()\n"
           "  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '--help --version");
  for (size_t i = 0; cli_command_name(i); i++) (void)fprintf(out, " %s", cli_command_name(i));
  (void)fprintf(out, "' -- \"$word\")); return\n  fi\n"
                     "  [ \"$word\" != = ] || word=\n"
                     "  [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
                     "  case $before in\n");
  print_values();
  (void)fprintf(out, "  esac\n  case ${COMP_WORDS[1]} in\n");
  for (size_t i = 0; cli_command_name(i); i++) {
    (void)fprintf(out, "    %s) options='", cli_command_name(i));
    each_option(cli_command_name(i), print_name);
    (void)fprintf(out, "' ;;\n");
  }
  (void)fprintf(out, "  esac\n  case ${COMP_WORDS[1]}:$word in\n"
                     "    *:-*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n");
  print_operands();
  (void)fprintf(out, "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n  esac\n}\n"
                     "complete -o filenames -F _weir weir\n");
  return 0;
}

/* ---- zsh ---- */
/* Prints a text that is inside single quotes and square brackets. */
static void print_escaped(const char *text) {
  for (const char *c = text; *c; c++) {
    if (*c == '\'') (void)fprintf(out, "'\\''");
    else if (strchr("[]:\\", *c)) (void)fprintf(out, "\\%c", *c);
    else (void)fputc(*c, out);
  }
}

static void print_zsh_option(const weir_option_info *o) {
  (void)fprintf(out, " \\\n        '*--%s%s[", o->name, o->placeholder[0] ? "=" : "");
  print_escaped(o->help);
  (void)fprintf(out, "]");
  if (lists_words(o->placeholder)) {
    (void)fprintf(out, ":value:(");
    print_words(o->placeholder);
    (void)fprintf(out, ")");
  } else if (o->placeholder[0]) {
    (void)fprintf(out, ":");
    print_escaped(o->placeholder);
    (void)fprintf(out, ":%s", strstr(o->placeholder, "FILE") ? "_files" : "");
  }
  (void)fprintf(out, "'");
}

static int print_zsh(void) {
  (void)fprintf(out,
                "#compdef weir\n# weir completion zsh: a file _weir in a folder of $fpath\n"
                "_weir() {\n  if (( CURRENT == 2 )); then\n    local -a commands\n    commands=(");
  for (size_t i = 0; cli_command_name(i); i++) {
    (void)fprintf(out, "\n      '%s:", cli_command_name(i));
    print_escaped(cli_command_summary(i));
    (void)fprintf(out, "'");
  }
  (void)fprintf(out,
                ")\n    _describe command commands\n    return\n  fi\n  local command=$words[2]\n"
                "  shift words; (( CURRENT-- ))\n  case $command in\n");
  for (size_t i = 0; cli_command_name(i); i++) {
    weir_option_info o;
    (void)fprintf(out, "    %s) _arguments", cli_command_name(i));
    for (size_t k = 0; k < weir_option_count(); k++)
      if (weir_option_describe(k, &o) == WEIR_OK && has_word(o.commands, cli_command_name(i)))
        print_zsh_option(&o);
    (void)fprintf(out, " \\\n        '--help[what the command takes]' '");
    if (lists_words(cli_command_operands(i))) {
      (void)fprintf(out, "*:word:(");
      print_words(cli_command_operands(i));
      (void)fprintf(out, ")' ;;\n");
    } else {
      (void)fprintf(out, "*:file:_files' ;;\n");
    }
  }
  (void)fprintf(out, "  esac\n}\n_weir \"$@\"\n");
  return 0;
}

/* ---- vim ---- */
/* Prints the first word of each line of weir_list(). */
static int print_first_words(const char *what) {
  char *text = NULL;
  CLI_CALL(weir_list(what, &text));
  for (const char *line = text; *line;) {
    (void)fprintf(out, " %.*s", (int)strcspn(line, " \n"), line);
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
  weir_string_free(text);
  return 0;
}

static int print_vim(void) {
  (void)fprintf(out, "\" weir completion vim: ~/.vim/syntax/weir.vim; and in ~/.vim/filetype.vim\n"
                     "\"   au BufRead,BufNewFile *.weir setfiletype weir\n"
                     "if exists('b:current_syntax')\n  finish\nendif\n"
                     "setlocal commentstring=#\\ %%s\n"
                     "syn match weirName '\\<[A-Za-z_][A-Za-z0-9_$]*'\n"
                     "syn keyword weirKeyword fusion host return schedule mesh extent of on for in "
                     "to step if else at sliced kernel\n"
                     "syn keyword weirMark stream serial\n"
                     "syn keyword weirConstant true false inf nan\n"
                     "syn keyword weirType");
  for (int t = WEIR_F64; t <= WEIR_BOOL; t++)
    (void)fprintf(out, " %s", weir_dtype_text((weir_dtype)t));
  (void)fprintf(out, "\nsyn keyword weirOperation");
  CLI_TRY(print_first_words("ops"));
  (void)fprintf(out,
                "\nsyn match weirNumber '\\<\\d\\+\\(\\.\\d*\\)\\?\\(e[-+]\\?\\d\\+\\)\\?\\>'\n"
                "syn match weirComment '#.*$' contains=@Spell\n");
  const char *links[][2] = {{"Keyword", "Keyword"},    {"Mark", "StorageClass"},
                            {"Constant", "Constant"},  {"Type", "Type"},
                            {"Operation", "Function"}, {"Number", "Number"},
                            {"Comment", "Comment"}};
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    (void)fprintf(out, "hi def link weir%s %s\n", links[i][0], links[i][1]);
  (void)fprintf(out, "let b:current_syntax = 'weir'\n");
  return 0;
}

/* ---- fish ---- */
/* Prints a text that is inside single quotes. */
static void print_quoted(const char *text) {
  (void)fputc('\'', out);
  for (const char *c = text; *c; c++)
    (void)fprintf(out, *c == '\'' || *c == '\\' ? "\\%c" : "%c", *c);
  (void)fputc('\'', out);
}

static void print_fish_option(const weir_option_info *o) {
  (void)fprintf(out, "complete -c weir -n '__fish_seen_subcommand_from %s' -l %s", o->commands,
                o->name);
  if (o->letter) (void)fprintf(out, " -s %c", o->letter);
  if (o->placeholder[0]) (void)fprintf(out, strstr(o->placeholder, "FILE") ? " -r" : " -x");
  if (lists_words(o->placeholder)) {
    (void)fprintf(out, " -a '");
    print_words(o->placeholder);
    (void)fprintf(out, "'");
  }
  (void)fprintf(out, " -d ");
  print_quoted(o->help);
  (void)fprintf(out, "\n");
}

static int print_fish(void) {
  weir_option_info o;
  (void)fprintf(out, "# weir completion fish: ~/.config/fish/completions/weir.fish\n");
  for (size_t i = 0; cli_command_name(i); i++) {
    const char *name = cli_command_name(i), *operands = cli_command_operands(i);
    (void)fprintf(out, "complete -c weir -n __fish_use_subcommand -f -a %s -d ", name);
    print_quoted(cli_command_summary(i));
    (void)fprintf(out, "\n");
    if (!lists_words(operands)) continue;
    (void)fprintf(out, "complete -c weir -n '__fish_seen_subcommand_from %s' -f -a '", name);
    print_words(operands);
    (void)fprintf(out, "'\n");
  }
  for (size_t i = 0; i < weir_option_count(); i++)
    if (weir_option_describe(i, &o) == WEIR_OK) print_fish_option(&o);
  return 0;
}

/* ---- the command ---- */
static const struct writer {
  const char *name;
  int (*print)(void);
} writers[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}, {"vim", print_vim}};

static int print(const cli *c, const struct writer *w) {
  char *text = NULL;
  size_t length = 0;
  out = open_memstream(&text, &length);
  if (!out) return cli_usage("out of memory");
  int code = w->print();
  if (fclose(out) != 0) code = cli_usage("out of memory");
  if (code == 0) cli_print(c, text);
  free(text);
  return code;
}

int cli_completion(const cli *c) {
  const char *shell = c->n_operands == 1 ? c->operands[0] : "";
  for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
    if (strcmp(shell, writers[i].name) == 0) return print(c, &writers[i]);
  return cli_usage("say for what: weir completion bash|zsh|fish|vim");
}
