/* Traces and statistics of plans made by hand, with spans made by hand. */
#include <ctype.h>
#include <stdlib.h>

#include "conform/plan_kit.h"
#include "test.h"
#include "trace/json.h"
#include "trace/stats.h"
#include "trace/trace.h"

/* ---- is it JSON? ---- */
static const char *value(const char *p);

static const char *spaces(const char *p) {
  while (p && isspace((unsigned char)*p)) p++;
  return p;
}

static const char *literal(const char *p, const char *word) {
  return strncmp(p, word, strlen(word)) == 0 ? p + strlen(word) : NULL;
}

static const char *string(const char *p) {
  if (*p++ != '"') return NULL;
  for (; *p && *p != '"'; p++) {
    if ((unsigned char)*p < 0x20) return NULL;
    if (*p != '\\') continue;
    if (!*++p || !strchr("\"\\/bfnrtu", *p)) return NULL;
    for (int i = 1; *p == 'u' && i <= 4; i++)
      if (!isxdigit((unsigned char)p[i])) return NULL;
  }
  return *p ? p + 1 : NULL;
}

/* The members of an object or an array, behind its opening bracket. */
static const char *members(const char *p, bool keys, char close) {
  p = spaces(p);
  if (*p == close) return p + 1;
  for (;; p++) {
    if (keys) {
      p = string(spaces(p));
      if (!p || *(p = spaces(p)) != ':') return NULL;
      p++;
    }
    p = value(p);
    if (!p) return NULL;
    p = spaces(p);
    if (*p == close) return p + 1;
    if (*p != ',') return NULL;
  }
}

static const char *value(const char *p) {
  char *end;
  p = spaces(p);
  switch (*p) {
  case '{': return members(p + 1, true, '}');
  case '[': return members(p + 1, false, ']');
  case '"': return string(p);
  case 't': return literal(p, "true");
  case 'f': return literal(p, "false");
  default:
    if (*p != '-' && !isdigit((unsigned char)*p)) return NULL;
    (void)strtod(p, &end);
    return end;
  }
}

static bool is_json(const char *text) {
  const char *p = spaces(value(text));
  return p && *p == '\0';
}

static uint32_t count(const char *text, const char *part) {
  uint32_t n = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) n++;
  return n;
}

/* ---- tests ---- */
static void test_strings(void) {
  arena memory;
  arena_init(&memory, &memory_default);
  strbuf s;
  strbuf_init(&s, &memory);
  trace_json_string(&s, "a\"b\\c\n\t\x01</script>\xc3\xa9");
  EXPECT_STR(s.data, "\"a\\\"b\\\\c\\u000a\\u0009\\u0001\\u003c/script>\xc3\xa9\"");
  EXPECT(is_json(s.data));
  EXPECT(!is_json("{\"a\":1,}"));
  EXPECT(!is_json("[1 2]"));
  arena_destroy(&memory);
}

/* Streams 1 and 2 overlap from 20 to 30; a third task comes later; the last did not run. */
static const rt_span spans[] = {
    {.start_ns = 10, .end_ns = 30, .instr = 0, .stream = 1, .worker = 0},
    {.start_ns = 20, .end_ns = 45, .instr = 1, .stream = 2, .worker = 1},
    {.start_ns = 1050, .end_ns = 2060, .instr = 3, .stream = 1, .worker = 1},
    {.start_ns = 2060, .end_ns = 2060, .instr = 4, .stream = 1, .worker = 1},
};

static void make_plan(kit *k) {
  kit_init(k, 3);
  uint32_t x = kit_buffer(k, RT_BUFFER_INPUT, 0, 100), a = kit_pool(k, 100), b = kit_pool(k, 100);
  k->buffers.data[a].name = "y\"</script><b>";
  (void)kit_set(k, 1, a, x);
  (void)kit_set(k, 2, b, x);
  (void)kit_wait(k, 1, 2);
  (void)kit_binary(k, 1, IR_OP_ADD, a, a, b);
  kit_free(k, b);
  uint32_t c = kit_pool(k, 30);
  (void)kit_binary(k, 1, IR_OP_ADD, a, a, c);
}

static void test_json(void) {
  kit k;
  make_plan(&k);
  strbuf s;
  strbuf_init(&s, &k.memory);
  trace_part t = {.device = "cpu", .rank = 3, .plan = kit_plan(&k), .spans = spans, .n_spans = 4};
  trace_json(&t, 1, &s);
  EXPECT(is_json(s.data));
  EXPECT_INT(count(s.data, "\"ph\":\"X\""), 3);
  EXPECT_INT(count(s.data, "thread_name"), 3);
  EXPECT_CONTAINS(s.data, "\"name\":\"cpu 3\"");
  EXPECT_CONTAINS(s.data, "\"name\":\"add\",\"pid\":3,\"tid\":1,\"ts\":1.050,\"dur\":1.010");
  EXPECT_CONTAINS(s.data, "\"writes\":\"y\\\"\\u003c/script>\\u003cb>[100]\"");
  EXPECT_CONTAINS(s.data, "\"bytes\":");
  EXPECT_CONTAINS(s.data, "\"iteration\":0");
  EXPECT_CONTAINS(s.data, "\"iteration\":1");
  kit_destroy(&k);
}

/* The page stands alone, and no name can break out of its script. */
static void test_html(void) {
  kit k;
  make_plan(&k);
  strbuf s;
  strbuf_init(&s, &k.memory);
  trace_part t[2];
  for (uint32_t i = 0; i < 2; i++)
    t[i] = (trace_part){
        .device = "sim", .rank = i, .plan = kit_plan(&k), .spans = spans, .n_spans = 4};
  trace_html(t, 2, "a < b & \"c\"", &s);
  EXPECT_CONTAINS(s.data, "<title>a &lt; b &amp; &quot;c&quot;</title>");
  EXPECT_INT(count(s.data, "<script"), 1);
  EXPECT_INT(count(s.data, "</script"), 1);
  EXPECT_INT(count(s.data, "http"), 0);
  EXPECT_INT(count(s.data, "src="), 0);
  EXPECT_INT(count(s.data, "\"ph\":\"X\""), 6);
  EXPECT_CONTAINS(s.data, "</html>");
  kit_destroy(&k);
}

static void test_picture(void) {
  kit k;
  make_plan(&k);
  strbuf s;
  strbuf_init(&s, &k.memory);
  trace_part t = {.device = "cpu", .rank = 3, .plan = kit_plan(&k), .spans = spans, .n_spans = 4};
  trace_svg(&t, "a < b", &s);
  EXPECT_CONTAINS(s.data, "<svg xmlns");
  EXPECT_CONTAINS(s.data, ">a &lt; b</text>");
  EXPECT_CONTAINS(s.data, ">cpu 3</text>");
  EXPECT_CONTAINS(s.data, ">500 ns</text>");
  EXPECT_INT(count(s.data, "height=\"16\" class=\"copy\""), 2);
  EXPECT_INT(count(s.data, "height=\"16\" class=\"compute\""), 1);
  EXPECT_CONTAINS(s.data, "</svg>");
  kit_destroy(&k);
}

static void test_empty(void) {
  kit k;
  kit_init(&k, 1);
  strbuf s;
  strbuf_init(&s, &k.memory);
  trace_part t = {.device = "null", .plan = kit_plan(&k)};
  trace_json(&t, 1, &s);
  EXPECT(is_json(s.data));
  trace_stats stats;
  trace_stats_make(kit_plan(&k), NULL, 0, 5, 0, &k.memory, &stats);
  EXPECT_INT(stats.compute_ns, 0);
  kit_destroy(&k);
}

static void test_stats(void) {
  kit k;
  make_plan(&k);
  trace_stats s;
  trace_stats_make(kit_plan(&k), spans, 4, 3000, 500, &k.memory, &s);
  EXPECT_INT(s.launches, 4);
  EXPECT_INT(s.waits, 1);
  EXPECT_INT(s.task_ns, 20 + 25 + 1010);
  EXPECT_INT(s.compute_ns, 35 + 1010);
  EXPECT_INT(s.overlap_ns, 10);
  EXPECT_INT(s.peak_bytes, 1600);
  kit_destroy(&k);
}

int main(void) {
  test_strings();
  test_json();
  test_html();
  test_picture();
  test_empty();
  test_stats();
  return test_finish();
}
