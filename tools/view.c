#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

/* "a/x.json" -> "a/x.html"; freed by the caller. */
static char *page_of(const char *trace) {
  size_t n = strlen(trace), room = n + sizeof ".html";
  if (n > 5 && strcmp(trace + n - 5, ".json") == 0) n -= 5;
  char *path = malloc(room);
  if (path) (void)snprintf(path, room, "%.*s.html", (int)n, trace);
  return path;
}

/* Opens the page in a browser, if there is a screen. That this fails is no error: the page was written. */
static void open_page(const char *path) {
  bool screen = getenv("DISPLAY") || getenv("WAYLAND_DISPLAY");
  if (!screen || !isatty(STDOUT_FILENO)) return;
  pid_t child = fork();
  if (child == 0) {
    (void)execlp("xdg-open", "xdg-open", path, (char *)NULL);
    _exit(127);
  }
  if (child > 0) (void)waitpid(child, NULL, 0);
}

static int view(const cli *c, const char *path) {
  CLI_CALL(weir_trace_page(c->operands, c->n_operands, c->operands[0], path));
  if (cli_flag(c, "json")) {
    (void)printf("{");
    cli_json_string("command", "view");
    (void)printf(", ");
    cli_json_string("page", path);
    (void)printf("}\n");
    return 0;
  }
  (void)printf("%s\n", path);
  (void)fflush(stdout);
  open_page(path);
  return 0;
}

int cli_view(const cli *c) {
  const char *given = cli_text(c, "page", 0);
  if (c->n_operands == 0)
    return cli_usage("weir view needs a trace; weir run --trace x.json writes one");
  if (given[0]) return view(c, given);
  char *path = page_of(c->operands[0]);
  if (!path) return cli_usage("out of memory");
  int code = view(c, path);
  free(path);
  return code;
}
