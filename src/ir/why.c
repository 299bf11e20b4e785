#include "ir/why.h"

#include "base/status.h"

const ir_rule_info *ir_rule_info_of(ir_rule rule) {
  static const ir_rule_info rules[] = {
#define RULE(id, name, sentence) {name, sentence},
#include "ir/rules.def"
#undef RULE
  };
  check(rule < IR_RULE_COUNT);
  return &rules[rule];
}
