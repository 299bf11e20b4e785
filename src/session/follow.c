#include "session/follow.h"

#include <time.h>

#include "session/memory.h"

status session_follow_add(session_follow *f, rt_stream theirs) {
  check(f->n < SESSION_MAX_STREAMS);
  TRY(session_memory()->follow(&theirs, &f->streams[f->n]));
  f->n++;
  return STATUS_OK;
}

static status await_one(const rt_stream *stream, rt_control *control) {
  struct timespec pause = {.tv_nsec = 20000};
  for (;;) {
    bool passed = false;
    if (rt_control_stops(control)) return STATUS_CANCELLED;
    TRY(session_memory()->passed(stream, &passed));
    if (passed) return STATUS_OK;
    (void)nanosleep(&pause, NULL);
    if (pause.tv_nsec < 500000) pause.tv_nsec *= 2;
  }
}

status session_follow_await(const session_follow *f, rt_control *control) {
  for (uint32_t i = 0; i < f->n; i++) TRY(await_one(&f->streams[i], control));
  return STATUS_OK;
}

status session_follow_finish(const session_follow *f, status st) {
  for (uint32_t i = 0; i < f->n; i++) {
    status ended = session_memory()->wait(&f->streams[i]);
    if (st == STATUS_OK) st = ended;
  }
  return st;
}

void session_follow_end(session_follow *f) {
  for (uint32_t i = 0; i < f->n; i++) session_memory()->end(&f->streams[i]);
  f->n = 0;
}
