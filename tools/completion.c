/* Completion for shells and a syntax file for vim, written from the tables of commands, options and operations:
 * they cannot be out of date. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

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
  (void)printf(" --help");
}

/* A placeholder in small letters with bars lists the values. */
static bool lists_words(const char *placeholder) {
  if (!strchr(placeholder, '|')) return false;
  for (const char *c = placeholder; *c; c++)
    if (*c >= 'A' && *c <= 'Z') return false;
  return true;
}

static void print_name(const weir_option_info *o) { (void)printf(" --%s", o->name); }

static void print_words(const char *barred) {
  for (const char *c = barred; *c; c++) (void)putchar(*c == '|' ? ' ' : *c);
}

/* ---- bash ---- */
static void print_values(void) {
  weir_option_info o;
  for (size_t i = 0; i < weir_option_count(); i++) {
    if (weir_option_describe(i, &o) != WEIR_OK || !lists_words(o.placeholder)) continue;
    (void)printf("    --%s) COMPREPLY=($(compgen -W '", o.name);
    print_words(o.placeholder);
    (void)printf("' -- \"$word\")); return ;;\n");
  }
}

static void print_operands(void) {
  for (size_t i = 0; cli_command_name(i); i++) {
    if (!lists_words(cli_command_operands(i))) continue;
    (void)printf("    %s:*) COMPREPLY=($(compgen -W '", cli_command_name(i));
    print_words(cli_command_operands(i));
    (void)printf("' -- \"$word\")) ;;\n");
  }
}

static void print_bash(void) {
  (void)printf("# weir completion bash: source it, or put it into "
               "~/.local/share/bash-completion/completions/weir\n"
               "_weir() {\n"
               "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options\n"
               "  COMPREPLY=()\n"
               "  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '--help --version");
  for (size_t i = 0; cli_command_name(i); i++) (void)printf(" %s", cli_command_name(i));
  (void)printf("' -- \"$word\")); return\n  fi\n"
               "  [ \"$word\" != = ] || word=\n"
               "  [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
               "  case $before in\n");
  print_values();
  (void)printf("  esac\n  case ${COMP_WORDS[1]} in\n");
  for (size_t i = 0; cli_command_name(i); i++) {
    (void)printf("    %s) options='", cli_command_name(i));
    each_option(cli_command_name(i), print_name);
    (void)printf("' ;;\n");
  }
  (void)printf("  esac\n  case ${COMP_WORDS[1]}:$word in\n"
               "    *:-*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n");
  print_operands();
  (void)printf("    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n  esac\n}\n"
               "complete -o filenames -F _weir weir\n");
}

/* ---- zsh ---- */
/* Inside single quotes and square brackets. */
static void print_escaped(const char *text) {
  for (const char *c = text; *c; c++) {
    if (*c == '\'') (void)printf("'\\''");
    else if (strchr("[]:\\", *c)) (void)printf("\\%c", *c);
    else (void)putchar(*c);
  }
}

static void print_zsh_option(const weir_option_info *o) {
  (void)printf(" \\\n        '*--%s%s[", o->name, o->placeholder[0] ? "=" : "");
  print_escaped(o->help);
  (void)printf("]");
  if (lists_words(o->placeholder)) {
    (void)printf(":value:(");
    print_words(o->placeholder);
    (void)printf(")");
  } else if (o->placeholder[0]) {
    (void)printf(":");
    print_escaped(o->placeholder);
    (void)printf(":%s", strstr(o->placeholder, "FILE") ? "_files" : "");
  }
  (void)printf("'");
}

static void print_zsh(void) {
  (void)printf("#compdef weir\n# weir completion zsh: a file _weir in a folder of $fpath\n"
               "_weir() {\n  if (( CURRENT == 2 )); then\n    local -a commands\n    commands=(");
  for (size_t i = 0; cli_command_name(i); i++) {
    (void)printf("\n      '%s:", cli_command_name(i));
    print_escaped(cli_command_summary(i));
    (void)printf("'");
  }
  (void)printf(")\n    _describe command commands\n    return\n  fi\n  local command=$words[2]\n"
               "  shift words; (( CURRENT-- ))\n  case $command in\n");
  for (size_t i = 0; cli_command_name(i); i++) {
    weir_option_info o;
    (void)printf("    %s) _arguments", cli_command_name(i));
    for (size_t k = 0; k < weir_option_count(); k++)
      if (weir_option_describe(k, &o) == WEIR_OK && has_word(o.commands, cli_command_name(i)))
        print_zsh_option(&o);
    (void)printf(" \\\n        '--help[what the command takes]' '*:file:_files' ;;\n");
  }
  (void)printf("  esac\n}\n_weir \"$@\"\n");
}

/* ---- vim ---- */
/* The first word of each line that weir_list() gives. */
static int print_first_words(const char *what) {
  char *text = NULL;
  CLI_CALL(weir_list(what, &text));
  for (const char *line = text; *line;) {
    (void)printf(" %.*s", (int)strcspn(line, " \n"), line);
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
  weir_string_free(text);
  return 0;
}

static int print_vim(void) {
  (void)printf("\" weir completion vim: ~/.vim/syntax/weir.vim; and in ~/.vim/filetype.vim\n"
               "\"   au BufRead,BufNewFile *.weir setfiletype weir\n"
               "if exists('b:current_syntax')\n  finish\nendif\n"
               "setlocal commentstring=#\\ %%s\n"
               "syn match weirName '\\<[A-Za-z_][A-Za-z0-9_$]*'\n"
               "syn keyword weirKeyword fusion host return schedule mesh of on for in\n"
               "syn keyword weirMark stream serial\n"
               "syn keyword weirConstant true false inf nan\n"
               "syn keyword weirType");
  for (int t = WEIR_F64; t <= WEIR_BOOL; t++) (void)printf(" %s", weir_dtype_text((weir_dtype)t));
  (void)printf("\nsyn keyword weirOperation");
  CLI_TRY(print_first_words("ops"));
  (void)printf("\nsyn match weirNumber '\\<\\d\\+\\(\\.\\d*\\)\\?\\(e[-+]\\?\\d\\+\\)\\?\\>'\n"
               "syn match weirComment '#.*$' contains=@Spell\n");
  const char *links[][2] = {{"Keyword", "Keyword"},    {"Mark", "StorageClass"},
                            {"Constant", "Constant"},  {"Type", "Type"},
                            {"Operation", "Function"}, {"Number", "Number"},
                            {"Comment", "Comment"}};
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    (void)printf("hi def link weir%s %s\n", links[i][0], links[i][1]);
  (void)printf("let b:current_syntax = 'weir'\n");
  return 0;
}

int cli_completion(const cli *c) {
  const char *shell = c->n_operands == 1 ? c->operands[0] : "";
  if (strcmp(shell, "bash") == 0) print_bash();
  else if (strcmp(shell, "zsh") == 0) print_zsh();
  else if (strcmp(shell, "vim") == 0) return print_vim();
  else return cli_usage("say for what: weir completion bash|zsh|vim");
  return 0;
}
