// PageLink: one end of a connection between a lender of pages and a borrower, over a unix socket
// that keeps messages apart. Both ends prove that they hold the coordinator's token before anything
// else is believed; the token itself does not cross.
//
//   lender   kChallenge  its nonce
//   borrower kHello      its nonce, its party, a tag over both nonces and the party
//   lender   kWelcome    a tag of its own over the same; with it the descriptor of the memory, or
//                        (a lender of chunks) the `bytes` of a chunk
//   lender   kChunk      the descriptor of one more chunk, and its `number`; `bytes` as kBacked
//   lender   kBacked     the first `bytes` of the memory may be used; as often as that changes
//   borrower kReturned   it has dropped the chunk with this `number`; nothing of it is left there
//
// Sends and receives without waiting. A message of another size or version is an error of the link.
// Threads: one owner. Units: bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/hmac.h"
#include "base/result.h"

namespace sluice {

// The key of the proofs, from the coordinator's token.
HmacKey page_link_key(std::string_view token);

enum class PageMessageKind : std::uint32_t {
  kChallenge = 1,
  kHello,
  kWelcome,
  kBacked,
  kChunk,
  kReturned,
};

using PageNonce = std::array<std::byte, 32>;

struct PageMessage {
  PageMessageKind kind = PageMessageKind::kChallenge;
  PageNonce nonce{};
  HmacTag tag{};
  std::string party = {};  // at most 64 characters
  std::int64_t bytes = 0;
  std::int64_t number = 0;
  FileDescriptor descriptor = {};  // received with it
};

// kUnavailable if the system gives no random numbers.
Result<PageNonce> random_page_nonce();

enum class PageEnd : std::uint8_t { kLender, kBorrower };
HmacTag page_proof(const HmacKey& key, PageEnd end, const PageNonce& lender,
                   const PageNonce& borrower, std::string_view party);

// A socket that listens at this name, which other processes of the network namespace can reach. It
// is no file, so a process that dies leaves nothing behind. kResourceExhausted if the name is
// taken.
Result<FileDescriptor> listen_for_pages(const std::string& name);
// kUnavailable if nothing listens there, or its queue is full.
Result<FileDescriptor> connect_for_pages(const std::string& name);

class PageLink {
 public:
  explicit PageLink(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  // False: the socket does not accept it now, and the message is dropped. `descriptor` crosses with
  // it if there is one.
  Result<bool> send(const PageMessage& message, int descriptor = -1);
  // The next message that has arrived. kUnavailable when the peer has closed its end.
  Result<std::optional<PageMessage>> receive();

 private:
  FileDescriptor socket_;
};

}  // namespace sluice
