/* Options: the table of options.def as data, and a set of values with one typed field per row.
 *
 * A value comes from the default, then from the environment (WEIR_<ID>; an empty variable counts as not
 * set; lists are separated by commas), then from options_set(); the last one holds. The first
 * options_set() of a list drops what the environment gave it. */
#ifndef WEIR_BASE_OPTIONS_H
#define WEIR_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/vec.h"

typedef enum option_kind {
  OPTION_INT,
  OPTION_FLAG,
  OPTION_TEXT,
  OPTION_CHOICE,
  OPTION_LIST,
} option_kind;

typedef enum option_id {
#define OPTION(id, field, name, letter, kind, placeholder, initial, low, high, commands, help)     \
  OPTION_ID_##id,
#include "base/options.def"
#undef OPTION
  OPTION_ID_COUNT
} option_id;

typedef struct option_row {
  option_id id;
  option_kind kind;
  const char *name, *environment, *placeholder, *initial, *commands, *help;
  char letter; /* ' ': none */
  int64_t lowest, highest;
} option_row;

typedef struct option_list {
  VEC(const char *) values;
  bool inherited; /* from the environment */
} option_list;

typedef int64_t option_type_INT;
typedef bool option_type_FLAG;
typedef const char *option_type_TEXT;
typedef const char *option_type_CHOICE;
typedef option_list option_type_LIST;

typedef struct options {
  arena memory;
#define OPTION(id, field, name, letter, kind, placeholder, initial, low, high, commands, help)     \
  option_type_##kind field;
#include "base/options.def"
#undef OPTION
  const char *text[OPTION_ID_COUNT]; /* the value as written; lists aside */
} options;

const option_row *option_at(option_id id);
const option_row *option_find(const char *name); /* NULL: no such option */

/* The defaults. */
void options_init(options *o, const allocator *memory);
void options_destroy(options *o);
/* Checks the value against the kind. Only inside a memory_guard(). */
NODISCARD status options_set(options *o, const option_row *row, const char *value);
/* Takes the values of the environment. Only inside a memory_guard(). */
NODISCARD status options_read_environment(options *o);

/* The value as text; of a list the k-th, NULL past the last. */
const char *options_text(const options *o, const option_row *row, size_t k);
int64_t options_int(const options *o, const option_row *row); /* the row must be an INT */
bool options_flag(const options *o, const option_row *row);   /* the row must be a FLAG */

#endif
