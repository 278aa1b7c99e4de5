// What a process says when JAX aborts it because process 0 of its run, which keeps the store of jax.distributed,
// has ended: JAX ends by SIGABRT from a thread of its own and names no process.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "interface/guard.h"

namespace xmcjax {
namespace {

// Read by the handler, which may call nothing but what POSIX calls async-signal-safe.
char sentence[512];
sockaddr_storage address;
socklen_t address_size = 0;
struct sigaction before;
bool armed = false;

constexpr int kPatience = 2000;  // milliseconds for an answer

// Whether a connection to the store is answered.
bool reachable() {
  const int peer = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (peer < 0) return true;  // without a socket the store counts as reachable
  bool answered = connect(peer, reinterpret_cast<const sockaddr*>(&address), address_size) == 0;
  if (!answered && errno == EINPROGRESS) {
    pollfd wait{peer, POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    answered = poll(&wait, 1, kPatience) == 1 && getsockopt(peer, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
               error == 0;
  }
  close(peer);
  return answered;
}

void on_abort(int number) {
  const int error = errno;
  if (!reachable()) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, sentence, strlen(sentence));
  }
  // the handler that was there before runs as soon as this one returns
  sigaction(number, &before, nullptr);
  raise(number);
  errno = error;
}

void disarm() {
  if (!armed) return;
  struct sigaction now;
  if (sigaction(SIGABRT, nullptr, &now) == 0 && now.sa_handler == on_abort)
    sigaction(SIGABRT, &before, nullptr);
  armed = false;
}

}  // namespace
}  // namespace xmcjax

// Arms a note for SIGABRT: where nobody answers at the port of the IP address any more, an abort of this process
// writes `text` to stderr before it goes on. The next call replaces the note; a null `text` removes it. Only one
// thread may call this at a time.
XMCJAX_EXPORT void xmcjax_note_at_abort(const char* text, const char* ip, int32_t port) {
  xmcjax::guarded([&] {
    using namespace xmcjax;
    disarm();
    if (!text) return;
    address = {};
    auto* four = reinterpret_cast<sockaddr_in*>(&address);
    auto* six = reinterpret_cast<sockaddr_in6*>(&address);
    if (inet_pton(AF_INET, ip, &four->sin_addr) == 1) {
      four->sin_family = AF_INET, four->sin_port = htons(uint16_t(port)), address_size = sizeof *four;
    } else {
      address = {};
      if (inet_pton(AF_INET6, ip, &six->sin6_addr) != 1) return;
      six->sin6_family = AF_INET6, six->sin6_port = htons(uint16_t(port)), address_size = sizeof *six;
    }
    strncpy(sentence, text, sizeof sentence - 1);
    struct sigaction ours = {};
    ours.sa_handler = on_abort;
    sigemptyset(&ours.sa_mask);
    armed = sigaction(SIGABRT, &ours, &before) == 0;
  });
}
