/* What the fuzz targets share. Each is one file, fuzz_NAME.c, linked with libFuzzer (`make fuzz
 * FUZZ=NAME`) and with replay.c, which runs it over tests/fuzz/corpus/NAME and mutations of
 * that. */
#ifndef WEIR_TESTS_FUZZ_TARGET_H
#define WEIR_TESTS_FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process, so that libFuzzer keeps the input. */
static inline void require(bool good, const char *what, const char *detail) {
  if (good) return;
  (void)fprintf(stderr, "fuzz: %s\n%s\n", what, detail);
  abort();
}

/* The input as a string; freed by the caller. */
static inline char *text_of(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) abort();
  if (size) memcpy(text, data, size);
  text[size] = '\0';
  return text;
}

#endif
