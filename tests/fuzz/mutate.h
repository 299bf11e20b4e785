/* Changing an input at random: bytes, numbers, and whole lines, which is what keeps a program readable. */
#ifndef WEIR_TESTS_FUZZ_MUTATE_H
#define WEIR_TESTS_FUZZ_MUTATE_H

#include <ctype.h>

#include "base/random.h"
#include "target.h"

typedef struct mutation {
  uint64_t state;
  uint8_t *data;
  size_t size, room;
} mutation;

static inline size_t mutation_below(mutation *m, size_t n) {
  m->state += UINT64_C(0x9e3779b97f4a7c15);
  return n ? (size_t)(random_mix(m->state) % n) : 0;
}

/* Replaces `gone` bytes at `at` by `n` others, which are not in m->data. */
static inline void mutation_splice(mutation *m, size_t at, size_t gone, const void *with,
                                   size_t n) {
  if (gone > m->size - at) gone = m->size - at;
  if (m->size - gone + n > m->room) return;
  memmove(m->data + at + n, m->data + at + gone, m->size - at - gone);
  if (n) memcpy(m->data + at, with, n);
  m->size = m->size - gone + n;
}

/* ---- bytes ---- */
static inline void mutate_byte(mutation *m) {
  uint8_t c = (uint8_t)mutation_below(m, 256);
  size_t at = mutation_below(m, m->size);
  mutation_splice(m, at, mutation_below(m, 2), &c, 1);
}

static inline void mutate_drop(mutation *m) {
  size_t at = mutation_below(m, m->size);
  mutation_splice(m, at, 1 + mutation_below(m, 8), NULL, 0);
}

/* One of the digits there are, so that numbers change and stay numbers. */
static inline void mutate_digit(mutation *m) {
  static const char digits[] = "0123456789";
  size_t from = mutation_below(m, m->size);
  for (size_t k = 0; k < m->size; k++) {
    uint8_t *c = &m->data[(from + k) % m->size];
    if (!isdigit(*c)) continue;
    *c = (uint8_t)digits[mutation_below(m, 10)];
    return;
  }
}

static inline void mutate_length(mutation *m) { m->size = mutation_below(m, m->size + 1); }

/* ---- lines ---- */
typedef struct mutation_line {
  size_t at, n; /* with its newline */
} mutation_line;

static inline mutation_line mutation_pick_line(mutation *m) {
  size_t at = mutation_below(m, m->size), end = at;
  while (at > 0 && m->data[at - 1] != '\n') at--;
  while (end < m->size && m->data[end] != '\n') end++;
  return (mutation_line){at, end - at + (end < m->size)};
}

/* A line goes, or comes once more, here or elsewhere. */
static inline void mutate_line(mutation *m) {
  uint8_t copy[256];
  mutation_line from = mutation_pick_line(m), to = mutation_pick_line(m);
  if (from.n > sizeof copy) return;
  memcpy(copy, m->data + from.at, from.n);
  size_t way = mutation_below(m, 4);
  if (way == 0) mutation_splice(m, from.at, from.n, NULL, 0);
  if (way == 1) mutation_splice(m, to.at, 0, copy, from.n);
  if (way == 2) mutation_splice(m, to.at, to.n, copy, from.n);
  if (way == 3 && to.at > from.at) {
    mutation_splice(m, to.at, 0, copy, from.n);
    mutation_splice(m, from.at, from.n, NULL, 0);
  }
}

static inline bool mutation_is_word(uint8_t c) { return isalnum(c) || c == '_' || c == '$'; }

static inline mutation_line mutation_pick_word(mutation *m) {
  size_t at = mutation_below(m, m->size), end = at;
  while (at > 0 && mutation_is_word(m->data[at - 1])) at--;
  while (end < m->size && mutation_is_word(m->data[end])) end++;
  return (mutation_line){at, end - at};
}

/* One word takes the place of another. */
static inline void mutate_word(mutation *m) {
  uint8_t copy[32];
  mutation_line from = mutation_pick_word(m), to = mutation_pick_word(m);
  if (from.n == 0 || to.n == 0 || from.n > sizeof copy) return;
  memcpy(copy, m->data + from.at, from.n);
  mutation_splice(m, to.at, to.n, copy, from.n);
}

/* ---- both ---- */
static inline void mutate(mutation *m, bool keep_text) {
  static void (*const ways[])(mutation *) = {mutate_line,  mutate_line,  mutate_word, mutate_word,
                                             mutate_digit, mutate_digit, mutate_drop, mutate_byte,
                                             mutate_byte,  mutate_length};
  for (size_t n = 1 + mutation_below(m, 3); n > 0 && m->size > 0; n--)
    ways[mutation_below(m, keep_text ? 6 : 10)](m);
}

#endif
