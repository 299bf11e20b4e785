/* What communication takes of a thread that computes, from rounds of which some were disturbed. */
#include "session/link.h"

#include <math.h>

#include "test.h"

enum { N = 9 };

static bool is_near(double a, double b) { return fabs(a - b) < 1e-9; }

static void fill(session_link_round *rounds) {
  for (int i = 0; i < N; i++) rounds[i] = (session_link_round){100, 75, 100};
}

static void test_calm(void) {
  session_link_round rounds[N];
  fill(rounds);
  EXPECT(is_near(session_link_lost(rounds, N), 0.25));
  EXPECT(is_near(session_link_lost(rounds, 1), 0.25));
  EXPECT(is_near(session_link_lost(rounds, 0), 0));
}

/* Others take half of the core while the worker is alone, while bytes move, or all the time; or the core is faster
 * for a while. */
static void test_disturbed(void) {
  session_link_round rounds[N];
  fill(rounds);
  rounds[1] = (session_link_round){50, 75, 50};
  rounds[2] = (session_link_round){100, 37, 100};
  rounds[4] = (session_link_round){50, 37.5, 50};
  rounds[7] = (session_link_round){120, 90, 120};
  EXPECT(is_near(session_link_lost(rounds, N), 0.25));
}

/* A machine that gets slower loses nothing by that. */
static void test_drift(void) {
  session_link_round rounds[N];
  for (int i = 0; i < N; i++) {
    double at = 100 - 10 * i;
    rounds[i] = (session_link_round){at, 0.75 * (at - 5), at - 10};
  }
  EXPECT(is_near(session_link_lost(rounds, N), 0.25));
}

/* Nothing was measured; all of the core. */
static void test_limits(void) {
  session_link_round rounds[N] = {{0}};
  EXPECT(is_near(session_link_lost(rounds, N), 0));
  for (int i = 0; i < N; i++) rounds[i] = (session_link_round){100, 0, 100};
  EXPECT(is_near(session_link_lost(rounds, N), 0.9));
  for (int i = 0; i < N; i++) rounds[i].beside = 110;
  EXPECT(is_near(session_link_lost(rounds, N), 0));
}

int main(void) {
  test_calm();
  test_disturbed();
  test_drift();
  test_limits();
  return test_finish();
}
