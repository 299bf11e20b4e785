/* The two notations of a host program say the same: for the seeds' programs on other meshes, for every
 * rank and pipeline, the nvFuser style has one line per instruction of the weir style, in its order. */
#include "stream_kit.h"
#include "test.h"

enum { WORDS = 1024 };

/* A letter per instruction. */
typedef struct words {
  char text[WORDS];
  uint32_t len;
} words;

typedef struct rule {
  const char *part;
  char letter;
} rule;

/* The first part that the line has tells the kind. */
static void add_word(words *w, const char *line, size_t n, const rule *rules) {
  char text[2048];
  snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), line);
  for (const rule *r = rules; r->part; r++) {
    if (!strstr(text, r->part)) continue;
    if (r->letter != ' ' && w->len + 1 < WORDS) w->text[w->len++] = r->letter;
    return;
  }
}

/* Up to a line that begins with `end`. */
static words read_words(const char *text, const rule *rules, const char *end) {
  words w = {.len = 0};
  while (*text) {
    size_t n = strcspn(text, "\n");
    if (strncmp(text, end, strlen(end)) == 0) break;
    add_word(&w, text, n, rules);
    text += n + (text[n] == '\n');
  }
  return w;
}

static const rule weir_rules[] = {{"host ", ' '},
                                  {"= allocate(", 'A'},
                                  {"current_stream()", 'G'},
                                  {"wait_stream(", 'Y'},
                                  {"set_stream(", 'S'},
                                  {"for ", 'F'},
                                  {"else", 'E'},
                                  {"if ", 'I'},
                                  {"= select(", 'L'},
                                  {"= shard(", 'H'},
                                  {"group_start", '['},
                                  {"group_end", ']'},
                                  {"wait(", 'W'},
                                  {"send(", 'P'},
                                  {"recv(", 'P'},
                                  {"team=", 'C'},
                                  {" <- ", 'X'},
                                  {" = ", 'X'},
                                  {NULL, ' '}};

static const rule nvfuser_rules[] = {{"%HostIrContainer", ' '},
                                     {"ALLOCATE(", 'A'},
                                     {"GetCurrentStream", 'G'},
                                     {"SetCurrentStream", 'S'},
                                     {"Synchronize", 'Y'},
                                     {"FOR ", 'F'},
                                     {"IF ", 'I'},
                                     {"ELSE", 'E'},
                                     {"= HirAliasSelect(", 'L'},
                                     {"= ShardByStream(", 'H'},
                                     {"StartCoalescing", '['},
                                     {"EndCoalescing", ']'},
                                     {"Wait Communication", 'W'},
                                     {"P2PCommunication", 'P'},
                                     {"Communication ", 'C'},
                                     {"PostOnStream", 'X'},
                                     {"   = ", 'X'},
                                     {NULL, ' '}};

typedef struct trial {
  const char *text;
  host_pipeline pipeline;
  uint32_t compared;
} trial;

/* A device outside of the mesh takes no part in communications, and its style does not show them. */
static void leave_out_comms(words *w) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < w->len; i++)
    if (!strchr("CWP[]", w->text[i])) w->text[n++] = w->text[i];
  w->text[w->len = n] = '\0';
}

static bool compare(subject *s, const ir_func *h, int64_t rank) {
  strbuf ours, theirs;
  strbuf_init(&ours, &s->memory);
  strbuf_init(&theirs, &s->memory);
  text_print_host(h, &ours);
  text_print_nvfuser(h, rank, &theirs);
  words a = read_words(ours.data, weir_rules, "fusion");
  words b = read_words(theirs.data, nvfuser_rules, "HostUnit0:");
  if (ir_mesh_find(&h->meshes.data[1], rank) < 0) leave_out_comms(&a);
  if (a.len > 3 && strcmp(a.text, b.text) == 0) return true;
  fprintf(stderr, "rank %d:\n%s\n%s\n%s\n%s", (int)rank, a.text, b.text, ours.data, theirs.data);
  return false;
}

static status check_styles(void *context) {
  trial *t = context;
  subject s;
  bool good = subject_open(&s, t->text);
  host_options options = {.pipeline = t->pipeline};
  ir_func *h = NULL;
  good = good && kit_ok(kit_lower_plain(s.func, &options, &h), "lower");
  for (int64_t rank = 0; good && rank < 8; rank++, t->compared++) good = compare(&s, h, rank);
  if (!good) fprintf(stderr, "%s\n%s\n", kit_reason, t->text);
  subject_close(&s);
  return good ? STATUS_OK : STATUS_CHECK_FAILED;
}

/* The program of a golden file, with another mesh. */
static bool read_program(const char *name, const char *mesh, char *text, size_t size) {
  char path[128], line[512];
  snprintf(path, sizeof path, "tests/golden/seed_%s.weir", name);
  FILE *f = fopen(path, "r");
  size_t n = 0;
  while (f && n < size && fgets(line, sizeof line, f) && strncmp(line, "# RUN", 5) != 0) {
    bool is_mesh = strstr(line, "mesh d = ") != NULL;
    n += (size_t)snprintf(text + n, size - n, "%s%s", is_mesh ? mesh : line, is_mesh ? "\n" : "");
  }
  if (f) (void)fclose(f);
  return f && n < size;
}

int main(void) {
  static const char *const names[] = {"ag_linear", "ag_matmul",     "ag_matmul_p2p",
                                      "allgather", "allgather_p2p", "allreduce",
                                      "matmul_ar", "matmul_rs",     "reduce_scatter"};
  /* ag_linear has two positions for two devices. */
  static const char *const meshes[] = {"mesh d = [2]", "mesh d = [2] of {5, 1}", "mesh d = [3]",
                                       "mesh d = [4] of {2, 0, 3, 1}", "mesh d = [8]"};
  char text[4096];
  trial t = {.text = text};
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    for (uint32_t k = 0; k < (i ? 5 : 2); k++) {
      for (host_pipeline p = HOST_AUTO; p <= HOST_BROADCAST; p++) {
        t.pipeline = p;
        if (!EXPECT(read_program(names[i], meshes[k], text, sizeof text))) continue;
        if (!EXPECT(memory_guard(check_styles, &t) == STATUS_OK))
          fprintf(stderr, "%s on %s, pipeline %d\n", names[i], meshes[k], (int)p);
      }
    }
  }
  EXPECT_INT(t.compared, (8 * 5 + 2) * 6 * 8);
  return test_finish();
}
