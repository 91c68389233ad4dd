// A hostile function process. It enters the sandbox and reports an engine that it does not have. At
// its first request it does what its argument says: it answers with frames that lie, or attacks the
// memory that it was given, and answers with (attacks that succeeded, attacks tried). Or it takes
// what it gets of one resource, answers with what it got and ends in the middle of its answer. Or
// it does not keep to its KV limit.
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "function/frame_socket.h"
#include "function/frames.h"
#include "function/run_function.h"
#include "tests/support/fake_function.h"

namespace {

using namespace sluice;
using test::receive;
using test::send;

constexpr std::size_t kPage = 4096;
constexpr TokenId kStartOfGrammar = 3;  // in hostile_function_test

OutputBatch answer(RequestId id, std::vector<TokenId> tokens) {
  OutputBatch batch;
  OutputEvent event;
  event.request = id;
  event.finish_reason = FinishReason::kStop;
  event.num_tokens = static_cast<std::uint32_t>(tokens.size());
  batch.tokens = std::move(tokens);
  batch.events.push_back(event);
  return batch;
}

void* map(int fd, int protection) { return mmap(nullptr, kPage, protection, MAP_SHARED, fd, 0); }

// Attacks on memory that this process may only read. True: it succeeded.
using Attack = std::function<bool(int fd)>;
const std::vector<Attack>& attacks() {
  static const std::vector<Attack> all = {
      [](int fd) { return map(fd, PROT_READ | PROT_WRITE) != MAP_FAILED; },
      [](int fd) {
        void* const data = map(fd, PROT_READ);
        return data != MAP_FAILED && mprotect(data, kPage, PROT_READ | PROT_WRITE) == 0;
      },
      [](int fd) {
        void* const data = map(fd, PROT_READ);
        return data != MAP_FAILED && madvise(data, kPage, MADV_REMOVE) == 0;
      },
      [](int fd) { return write(fd, "x", 1) == 1; },
      [](int fd) { return pwrite(fd, "x", 1, 0) == 1; },
      [](int fd) {
        return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage) == 0;
      },
      [](int fd) { return ftruncate(fd, 0) == 0; },
      [](int fd) { return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0; },
      [](int fd) { return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR) >= 0; },
  };
  return all;
}

// Another's page of turns, backbone or adapter would have to be a descriptor that this process was
// not given.
int count_descriptors() {
  int open = 0;
  for (int fd = 0; fd < 64; ++fd) open += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return open;
}

OutputBatch attack_memory(RequestId id, int adapter) {
  TokenId tried = 0;
  TokenId succeeded = 0;
  for (const int fd :
       {FunctionDescriptors::kBackbone, FunctionDescriptors::kManifest,
        FunctionDescriptors::kTurnGrant, FunctionDescriptors::kUrgentCount, adapter}) {
    for (const Attack& attack : attacks()) {
      ++tried;
      succeeded += attack(fd) ? 1 : 0;
    }
  }
  // The given ones and the adapter.
  if (count_descriptors() > FunctionDescriptors::kCount + 1) ++succeeded;
  return answer(id, {succeeded, tried});
}

// Resident MiB, until the kernel refuses or kills. Far more than the limit of the test.
TokenId take_memory() {
  constexpr std::size_t kMany = std::size_t{1} << 20;
  TokenId taken = 0;
  for (; taken < 1024; ++taken) {
    void* const data =
        mmap(nullptr, kMany, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) break;
    for (std::size_t i = 0; i < kMany; i += kPage) static_cast<volatile char*>(data)[i] = 1;
  }
  return taken;
}

void* sleep_long(void*) {
  constexpr timespec kHour{3600, 0};
  nanosleep(&kHour, nullptr);
  return nullptr;
}

// Processes and threads.
TokenId take_tasks() {
  TokenId taken = 0;
  for (int i = 0; i < 1000; ++i) {
    const pid_t child = fork();
    if (child == 0) sleep_long(nullptr);
    pthread_t thread{};
    const bool started = pthread_create(&thread, nullptr, sleep_long, nullptr) == 0;
    taken += (child > 0 ? 1 : 0) + (started ? 1 : 0);
    if (child < 0 && !started) break;
  }
  return taken;
}

TokenId take_descriptors() {
  TokenId taken = 0;
  while (taken < 10'000 && eventfd(0, 0) >= 0) ++taken;
  return taken;
}

// True: `kind` was a resource; the answer has no end.
bool take_without_end(const std::string& kind, RequestId id, FrameSocket& socket) {
  const std::map<std::string, TokenId (*)()> resources = {{"takes_memory", take_memory},
                                                          {"takes_tasks", take_tasks},
                                                          {"takes_descriptors", take_descriptors}};
  const auto found = resources.find(kind);
  if (found == resources.end()) return false;
  OutputBatch batch = answer(id, {found->second()});
  batch.events[0].finish_reason = FinishReason::kNone;
  send(socket, batch);
  return true;
}

// Takes more than its limit, and says that it keeps to it. The test's blocks have a page.
void hide_memory(std::int64_t limit, FrameSocket& socket) {
  static std::vector<char> hidden;
  if (hidden.empty()) hidden.assign(std::size_t{64} << 20, 'x');
  OutputBatch batch;
  batch.gauges.kv_limit_blocks = static_cast<std::int32_t>(limit / std::int64_t{kPage});
  batch.gauges.kv_blocks_backed = 1;
  send(socket, batch);
}

void send_bytes(const FrameSocket& socket, const std::vector<std::uint32_t>& words) {
  static_cast<void>(::send(socket.fd(), words.data(), words.size() * sizeof(words[0]), 0));
}

void lie(const std::string& kind, const Request& request, FrameSocket& socket) {
  const RequestId id = request.id;
  const std::map<std::string, std::function<void()>> lies = {
      {"another_request", [&] { send(socket, answer(id + 1000, {1})); }},
      {"no_vocabulary", [&] { send(socket, answer(id, {1 << 30})); }},
      {"negative_token", [&] { send(socket, answer(id, {-1})); }},
      {"too_many_tokens",
       [&] {
         const auto tokens = static_cast<std::size_t>(request.sampling.max_tokens) + 1;
         send(socket, answer(id, std::vector<TokenId>(tokens, 1)));
       }},
      {"another_choice",
       [&] {
         OutputBatch batch = answer(id, {1});
         batch.events[0].choice = 7;
         send(socket, batch);
       }},
      {"tokens_elsewhere",
       [&] {
         OutputBatch batch = answer(id, {1});
         batch.events[0].first_token = 5;
         send(socket, batch);
       }},
      {"ends_twice",
       [&] {
         OutputBatch batch = answer(id, {1});
         batch.events.push_back(batch.events[0]);
         send(socket, batch);
       }},
      {"unasked_logprobs",
       [&] {
         OutputBatch batch = answer(id, {1});
         batch.logprobs = {{1, -0.5F}};
         batch.events[0].num_logprobs = 1;
         send(socket, batch);
       }},
      {"outside_of_grammar", [&] { send(socket, answer(id, {kStartOfGrammar + 1})); }},
      {"stops_inside_of_grammar", [&] { send(socket, answer(id, {kStartOfGrammar})); }},
      {"ends_inside_of_grammar",
       [&] {
         OutputBatch batch = answer(id, {kStartOfGrammar});
         batch.events[0].finish_reason = FinishReason::kNone;
         send(socket, batch);
         send(socket, answer(id, {2}));  // the end-of-sequence id
       }},
      {"endless_frame", [&] { send_bytes(socket, {0xffffffffU, 1}); }},
      {"empty_frame", [&] { send_bytes(socket, {0, 0}); }},
      {"noise", [&] { send_bytes(socket, {8, 0x12345678U, 0x9abcdef0U}); }},
      {"another_version",
       [&] {
         StateFrame state;
         state.version = kFrameVersion + 1;
         send(socket, state);
       }},
      {"stopped",
       [&] {
         StateFrame state;
         state.state = EngineState::kStopped;
         send(socket, state);
       }},
      {"closes", [&] { shutdown(socket.fd(), SHUT_RDWR); }},
  };
  lies.at(kind)();
}

// Serves one request. The server answers by ending this process.
int serve(const std::string& kind) {
  FrameSocket socket(FileDescriptor(FunctionDescriptors::kSocket), FrameSocket::Descriptors::kTake);
  if (!test::serve_no_engine(socket)) return 1;
  FileDescriptor adapter;
  for (;;) {
    const auto message = receive(socket);
    if (!message) return 0;
    if (std::holds_alternative<AdapterFrame>(*message)) adapter = socket.take_descriptor();
    if (const auto* limit = std::get_if<KvLimitFrame>(&*message); limit && kind == "hides_memory") {
      hide_memory(limit->bytes, socket);
    }
    const auto* const frame = std::get_if<RequestFrame>(&*message);
    if (frame == nullptr) continue;
    const Request* const request = &frame->request;
    if (take_without_end(kind, request->id, socket)) return 0;
    if (kind == "memory") {
      send(socket, attack_memory(request->id, adapter.get()));
    } else {
      lie(kind, *request, socket);
    }
  }
}

}  // namespace

int main(int, char** arguments) { _exit(serve(arguments[1])); }
