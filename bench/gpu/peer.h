/* A program in PyTorch that is given orders, a line each, and answers with times in ms. */
#ifndef WEIR_BENCH_GPU_PEER_H
#define WEIR_BENCH_GPU_PEER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct peer {
  FILE *orders, *answers;
} peer;

/* Starts it, and waits until it is ready. False: there is no PyTorch, or no such program. */
static inline bool peer_start(peer *p, char *const *args) {
  int to[2], from[2];
  char line[16] = "";
  if (pipe(to) != 0 || pipe(from) != 0) return false;
  pid_t child = fork();
  if (child == 0) {
    (void)dup2(to[0], 0);
    (void)dup2(from[1], 1);
    (void)close(to[1]);
    (void)close(from[0]);
    (void)execvp(args[0], args);
    _exit(127);
  }
  (void)close(to[0]);
  (void)close(from[1]);
  p->orders = fdopen(to[1], "w");
  p->answers = fdopen(from[0], "r");
  return child > 0 && p->orders && p->answers && fgets(line, sizeof line, p->answers) &&
         strcmp(line, "ready\n") == 0;
}

static inline double peer_run(const peer *p, const char *order) {
  double ms = 0;
  fprintf(p->orders, "%s\n", order);
  if (fflush(p->orders) == 0 && fscanf(p->answers, "%lf", &ms) == 1) return ms;
  fprintf(stderr, "the program in PyTorch has ended\n");
  exit(3);
}

#endif
