#include <string.h>

#include "text/parser.h"

typedef struct habit {
  const char *word, *here;
} habit;

static const habit functions[] = {
#define HABIT(word, here) {#word, here},
#define HABIT_DTYPE(word, dtype)
#include "text/habits.def"
#undef HABIT
#undef HABIT_DTYPE
};

static const habit dtypes[] = {
#define HABIT(word, here)
#define HABIT_DTYPE(word, dtype) {#word, #dtype},
#include "text/habits.def"
#undef HABIT
#undef HABIT_DTYPE
};

static const char *find(const text_parser *p, const text_token *t, const habit *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (strlen(list[i].word) == t->length && !memcmp(list[i].word, text_of(p, t), t->length))
      return list[i].here;
  }
  return NULL;
}

const char *text_habit_function(const text_parser *p, const text_token *t) {
  return find(p, t, functions, sizeof functions / sizeof *functions);
}

const char *text_habit_dtype(const text_parser *p, const text_token *t) {
  return find(p, t, dtypes, sizeof dtypes / sizeof *dtypes);
}

bool text_is_function(const text_parser *p, const text_token *t) {
  return ir_op_parse(text_of(p, t), t->length) != IR_OP_NONE;
}
