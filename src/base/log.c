#include "base/log.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_text_fn *tell_text;
static log_progress_fn *tell_progress;
static void *tell_context;

void log_to(log_text_fn *text, log_progress_fn *progress, void *context) {
  (void)pthread_mutex_lock(&lock);
  tell_text = text;
  tell_progress = progress;
  tell_context = context;
  (void)pthread_mutex_unlock(&lock);
}

void log_text(const char *text) {
  (void)pthread_mutex_lock(&lock);
  if (tell_text) tell_text(tell_context, text);
  else (void)fputs(text, stderr);
  (void)pthread_mutex_unlock(&lock);
}

bool log_progress(const char *what, int64_t done, int64_t total) {
  (void)pthread_mutex_lock(&lock);
  bool listens = tell_progress != NULL;
  if (listens) tell_progress(tell_context, what, done, total);
  (void)pthread_mutex_unlock(&lock);
  return listens;
}
