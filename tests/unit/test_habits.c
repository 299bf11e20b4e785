/* What is said of words of other systems: src/text/habits.def names only what there is. */
#include <ctype.h>

#include "ir/op.h"
#include "test.h"

typedef struct row {
  const char *word, *here;
} row;

#define HABIT(word, here) {#word, here},
#define HABIT_DTYPE(word, dtype)
#define HABIT_ARGUMENT(word, argument)
#define HABIT_OF(code, word, here) {#word, here},
#define HABIT_MODULE(word)
static const row advice[] = {
#include "text/habits.def"
};
#undef HABIT
#undef HABIT_DTYPE
#undef HABIT_ARGUMENT
#undef HABIT_OF
#undef HABIT_MODULE

#define HABIT(word, here) {#word, NULL},
#define HABIT_DTYPE(word, dtype) {#word, #dtype},
#define HABIT_ARGUMENT(word, argument) {#word, #argument},
#define HABIT_OF(code, word, here)
#define HABIT_MODULE(word)
static const row words[] = {
#include "text/habits.def"
};

enum { ADVICE = sizeof advice / sizeof *advice, WORDS = sizeof words / sizeof *words };

static bool is_letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* A word before a parenthesis is a function: sum(x). */
static void functions_exist(const row *r) {
  for (const char *p = r->here; *p; p++) {
    size_t n = 0;
    if (p > r->here && is_letter(p[-1])) continue;
    while (is_letter(p[n])) n++;
    if (n == 0 || p[n] != '(') continue;
    if (!EXPECT(ir_op_parse(p, n) != IR_OP_NONE))
      fprintf(stderr, "  the advice on %s: %s\n", r->word, r->here);
  }
}

static bool is_param(const char *name) {
  for (int code = IR_OP_NONE + 1; code < IR_OP_COUNT; code++)
    for (const ir_param *q = ir_op_info_of((ir_opcode)code)->params; q->kind != IR_PARAM_END; q++)
      if (strcmp(q->name, name) == 0) return true;
  return false;
}

int main(void) {
  for (int i = 0; i < ADVICE; i++) functions_exist(&advice[i]);
  for (int i = 0; i < WORDS; i++) {
    const row *r = &words[i];
    bool dtype = r->here && ir_dtype_parse(r->here, strlen(r->here)) != IR_DTYPE_NONE;
    bool known = !r->here || dtype || is_param(r->here);
    /* An operation of that name would never be looked up. */
    bool shadows = !r->here && ir_op_parse(r->word, strlen(r->word)) != IR_OP_NONE;
    if (!EXPECT(known && !shadows)) fprintf(stderr, "  %s\n", r->word);
  }
  return test_finish();
}
