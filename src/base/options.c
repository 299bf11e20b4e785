#include "base/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

static const char device_words[] =
#define DEVICE(id) #id "|"
#include "base/devices.def"
#undef DEVICE
    "ref";

static const option_row rows[OPTION_ID_COUNT] = {
#define OPTION(id_, field_, name_, letter_, kind_, placeholder_, initial_, low_, high_, commands_, \
               help_)                                                                              \
  {.id = OPTION_ID_##id_,                                                                          \
   .kind = OPTION_##kind_,                                                                         \
   .name = name_,                                                                                  \
   .environment = "WEIR_" #id_,                                                                    \
   .placeholder = placeholder_,                                                                    \
   .initial = initial_,                                                                            \
   .commands = commands_,                                                                          \
   .help = help_,                                                                                  \
   .letter = letter_,                                                                              \
   .lowest = low_,                                                                                 \
   .highest = high_},
#include "base/options.def"
#undef OPTION
};

static const size_t field_offset[OPTION_ID_COUNT] = {
#define OPTION(id, field, name, letter, kind, placeholder, initial, low, high, commands, help)     \
  offsetof(options, field),
#include "base/options.def"
#undef OPTION
};

const option_row *option_at(option_id id) {
  check(id < OPTION_ID_COUNT);
  return &rows[id];
}

const option_row *option_find(const char *name) {
  for (size_t i = 0; i < OPTION_ID_COUNT; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}

static void *field_of(options *o, const option_row *row) {
  return (char *)o + field_offset[row->id];
}
static const void *field_read(const options *o, const option_row *row) {
  return (const char *)o + field_offset[row->id];
}

/* ---- values from text ---- */
static status parse_int(const option_row *row, const char *text, int64_t *value) {
  char *end = NULL;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  bool digits = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
  if (!digits || *end != '\0')
    return fail(STATUS_BAD_USAGE, "--%s takes an integer, not '%s'", row->name, text);
  if (errno == ERANGE || n < row->lowest || n > row->highest)
    return fail(STATUS_BAD_USAGE, "--%s is an integer from %" PRId64 " to %" PRId64 ", not %s",
                row->name, row->lowest, row->highest, text);
  *value = n;
  return STATUS_OK;
}

static status parse_flag(const option_row *row, const char *text, bool *value) {
  static const char *const words[2][4] = {{"false", "0", "no", "off"}, {"true", "1", "yes", "on"}};
  for (int truth = 0; truth < 2; truth++) {
    for (int i = 0; i < 4; i++) {
      if (strcmp(words[truth][i], text) != 0) continue;
      *value = truth;
      return STATUS_OK;
    }
  }
  return fail(STATUS_BAD_USAGE, "--%s is true or false, not '%s'", row->name, text);
}

static bool is_choice(const option_row *row, const char *text) {
  size_t length = strlen(text);
  for (const char *word = row->placeholder;;) {
    const char *end = strchr(word, '|');
    size_t n = end ? (size_t)(end - word) : strlen(word);
    if (n == length && memcmp(word, text, n) == 0) return true;
    if (!end) return false;
    word = end + 1;
  }
}

static status check_choice(options *o, const option_row *row, const char *text) {
  if (is_choice(row, text)) return STATUS_OK;
  suggestion near;
  suggest_advice advice;
  suggest_init(&near, text, strlen(text));
  /* Others say `gpu`; by edit distance alone, `cpu` would be suggested. */
  if (strcmp(text, "gpu") == 0 && is_choice(row, "cuda")) suggest_init(&near, "cuda", 4);
  for (const char *word = row->placeholder; *word;) {
    size_t n = strcspn(word, "|");
    suggest_offer(&near, arena_string(&o->memory, word, n));
    word += word[n] == '|' ? n + 1 : n;
  }
  return fail(STATUS_BAD_USAGE, "--%s is one of %s, not '%s'%s", row->name, row->placeholder, text,
              suggest_text(&near, advice));
}

static void add_to_list(options *o, option_list *list, const char *text) {
  if (list->inherited) *list = (option_list){0};
  vec_push(&o->memory, &list->values, text);
}

/* Stores a value whose text lives as long as the options. */
static status store(options *o, const option_row *row, const char *text) {
  void *field = field_of(o, row);
  switch (row->kind) {
  case OPTION_INT: TRY(parse_int(row, text, field)); break;
  case OPTION_FLAG:
    TRY(parse_flag(row, text, field));
    text = *(bool *)field ? "true" : "false";
    break;
  case OPTION_CHOICE:
    TRY(check_choice(o, row, text));
    *(const char **)field = text;
    break;
  case OPTION_TEXT: *(const char **)field = text; break;
  case OPTION_LIST: add_to_list(o, field, text); return STATUS_OK;
  }
  o->text[row->id] = text;
  return STATUS_OK;
}

/* ---- sets of values ---- */
void options_init(options *o, const allocator *memory) {
  *o = (options){0};
  arena_init(&o->memory, memory);
  for (size_t i = 0; i < OPTION_ID_COUNT; i++) {
    const option_row *row = &rows[i];
    o->text[i] = row->initial;
    if (row->kind == OPTION_LIST || (row->kind == OPTION_INT && row->initial[0] == '\0')) continue;
    check(store(o, row, row->initial) == STATUS_OK);
  }
}

void options_destroy(options *o) { arena_destroy(&o->memory); }

status options_set(options *o, const option_row *row, const char *value) {
  return store(o, row, arena_string(&o->memory, value, strlen(value)));
}

static void split_list(options *o, const option_row *row, const char *text) {
  option_list *list = field_of(o, row);
  while (*text != '\0') {
    size_t n = strcspn(text, ",");
    if (n > 0) vec_push(&o->memory, &list->values, arena_string(&o->memory, text, n));
    text += text[n] == ',' ? n + 1 : n;
  }
  list->inherited = true;
}

/* The user does not see the value on the command line, so the message says where it comes from. */
static status set_from_environment(options *o, const option_row *row, const char *value) {
  status st = options_set(o, row, value);
  if (st == STATUS_OK) return st;
  const char *why = arena_printf(&o->memory, "%s", status_message());
  status_clear();
  return fail(st, "%s (from the environment: %s=%s)", why, row->environment, value);
}

status options_read_environment(options *o) {
  for (size_t i = 0; i < OPTION_ID_COUNT; i++) {
    const char *value = getenv(rows[i].environment);
    if (!value || value[0] == '\0') continue;
    if (rows[i].kind == OPTION_LIST) split_list(o, &rows[i], value);
    else TRY(set_from_environment(o, &rows[i], value));
  }
  return STATUS_OK;
}

const char *options_text(const options *o, const option_row *row, size_t k) {
  if (row->kind != OPTION_LIST) return k == 0 ? o->text[row->id] : NULL;
  const option_list *list = field_read(o, row);
  return k < list->values.len ? list->values.data[k] : NULL;
}

int64_t options_int(const options *o, const option_row *row) {
  check(row->kind == OPTION_INT);
  return *(const int64_t *)field_read(o, row);
}

bool options_flag(const options *o, const option_row *row) {
  check(row->kind == OPTION_FLAG);
  return *(const bool *)field_read(o, row);
}
