/* What a connection keeps in the system: little to begin with, and as much as its rate needs. */
#include "comm/processes/tcp_room.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

static int sender, receiver;

static bool make_connection(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  sender = socket(AF_INET, SOCK_STREAM, 0);
  bool ok = bind(listener, (struct sockaddr *)&at, size) == 0 && listen(listener, 1) == 0 &&
            getsockname(listener, (struct sockaddr *)&at, &size) == 0 &&
            connect(sender, (struct sockaddr *)&at, size) == 0;
  receiver = ok ? accept(listener, NULL, NULL) : -1;
  (void)close(listener);
  return receiver >= 0 && fcntl(sender, F_SETFL, O_NONBLOCK) == 0;
}

static int kept(void) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  (void)getsockopt(sender, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
  return bytes;
}

static void test_wanted(void) {
  EXPECT(tcp_room_wanted(0, 100) == 0);
  EXPECT(tcp_room_wanted(125000000, 0) == 250000); /* 2 ms at 1 Gbit/s */
  EXPECT(tcp_room_wanted(125000000, 10000) == 2750000);
}

static void test_begin(void) {
  tcp_room r;
  tcp_room_begin(&r, sender, 2);
  EXPECT(r.bytes == 128 << 10 && kept() == 128 << 10);
  tcp_room_begin(&r, sender, 7);
  EXPECT(r.bytes == 64 << 10 && kept() == 64 << 10);
  tcp_room_begin(&r, sender, 1000);
  EXPECT(r.bytes == 32 << 10 && kept() == 32 << 10);
  tcp_room_begin(&r, -1, 2); /* as the system thinks */
  EXPECT(r.bytes == 0);
  tcp_room_is_full(&r, -1, 1);
}

/* Memory of the machine is faster than any link. */
static void test_growth(void) {
  static char data[1 << 16];
  tcp_room r;
  int64_t now_ns = 0;
  tcp_room_begin(&r, sender, 2);
  int before = kept();
  for (int i = 0; i < 1000 && r.bytes == 128 << 10; i++) {
    for (ssize_t n; (n = send(sender, data, sizeof data, MSG_NOSIGNAL)) > 0;)
      r.sent_bytes += (uint64_t)n;
    tcp_room_is_full(&r, sender, now_ns += 200000);
    while (recv(receiver, data, sizeof data, MSG_DONTWAIT) > 0) {
    }
  }
  EXPECT(r.bytes != 128 << 10);
  EXPECT(kept() > before);
}

/* Not looked at again within 10 ms. */
static void test_pause(void) {
  tcp_room r;
  tcp_room_begin(&r, sender, 2);
  r.looked_ns = 1000;
  tcp_room_is_full(&r, sender, 1001);
  EXPECT(r.looked_ns == 1000 && r.bytes == 128 << 10);
}

int main(void) {
  if (!EXPECT(make_connection())) return test_finish();
  test_wanted();
  test_begin();
  test_pause();
  test_growth();
  (void)close(sender);
  (void)close(receiver);
  return test_finish();
}
