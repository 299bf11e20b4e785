#include <string.h>

#include "text/parser.h"

typedef struct habit {
  const char *word, *here;
} habit;

#define HABIT(word, here) {#word, here},
#define HABIT_DTYPE(word, dtype)
#define HABIT_ARGUMENT(word, argument)
#define HABIT_OF(code, word, here)
#define HABIT_MODULE(word)
static const habit functions[] = {
#include "text/habits.def"
};
#undef HABIT
#undef HABIT_DTYPE

#define HABIT(word, here)
#define HABIT_DTYPE(word, dtype) {#word, #dtype},
static const habit dtypes[] = {
#include "text/habits.def"
};
#undef HABIT_DTYPE
#undef HABIT_ARGUMENT

#define HABIT_DTYPE(word, dtype)
#define HABIT_ARGUMENT(word, argument) {#word, #argument},
static const habit arguments[] = {
#include "text/habits.def"
};
#undef HABIT_ARGUMENT
#undef HABIT_OF

#define HABIT_ARGUMENT(word, argument)
#define HABIT_OF(code, word, here) {code, {#word, here}},
static const struct {
  ir_opcode code;
  habit habit;
} of_one[] = {
#include "text/habits.def"
};
#undef HABIT_OF
#undef HABIT_MODULE

#define HABIT_OF(code, word, here)
#define HABIT_MODULE(word) {#word, ""},
static const habit modules[] = {
#include "text/habits.def"
};

static bool is_word(const text_parser *p, const text_token *t, const char *word) {
  return strlen(word) == t->length && memcmp(word, text_of(p, t), t->length) == 0;
}

static const char *find(const text_parser *p, const text_token *t, const habit *list, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (is_word(p, t, list[i].word)) return list[i].here;
  return NULL;
}

const char *text_habit_function(const text_parser *p, const text_token *t) {
  return find(p, t, functions, sizeof functions / sizeof *functions);
}

const char *text_habit_dtype(const text_parser *p, const text_token *t) {
  return find(p, t, dtypes, sizeof dtypes / sizeof *dtypes);
}

bool text_habit_module(const text_parser *p, const text_token *t) {
  return find(p, t, modules, sizeof modules / sizeof *modules) != NULL;
}

static bool has_param(const ir_op_info *info, const char *name) {
  for (const ir_param *q = info->params; q->kind != IR_PARAM_END; q++)
    if (strcmp(q->name, name) == 0) return true;
  return false;
}

const char *text_habit_argument(const text_parser *p, const text_token *t, const ir_op_info *info) {
  for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
    const habit *h = &arguments[i];
    if (is_word(p, t, h->word) && has_param(info, h->here)) return h->here;
  }
  return NULL;
}

const char *text_habit_of(const text_parser *p, const text_token *t, ir_opcode code) {
  for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++)
    if (of_one[i].code == code && is_word(p, t, of_one[i].habit.word)) return of_one[i].habit.here;
  return NULL;
}

bool text_is_function(const text_parser *p, const text_token *t) {
  return ir_op_parse(text_of(p, t), t->length) != IR_OP_NONE;
}
