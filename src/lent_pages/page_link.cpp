#include "lent_pages/page_link.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/descriptor_message.h"
#include "base/sha256.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic{"sluicepg", 8};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kPartyBytes = 64;
constexpr int kBacklog = 64;

// As it crosses: both ends are on one machine.
struct Wire {
  char magic[8];
  std::uint32_t version;
  std::uint32_t kind;
  std::byte nonce[32];
  std::byte tag[32];
  char party[kPartyBytes];
  std::int64_t bytes;
  std::int64_t number;
};
static_assert(sizeof(Wire) == 160);

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

// An abstract name: the first byte is zero.
Result<Address> address_of(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof(address.name.sun_path) - 1) {
    return invalid_argument(fmt::format("'{}' is no name of a socket of pages", name));
  }
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

FileDescriptor make_socket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

Error socket_error(const char* what, const std::string& name) {
  return unavailable(
      fmt::format("cannot {} the socket of pages '{}': {}", what, name, std::strerror(errno)));
}

bool must_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

HmacKey page_link_key(std::string_view token) {
  const Sha256Digest digest = sha256(std::as_bytes(std::span(token)));
  HmacKey secret{};
  static_assert(sizeof(digest) == sizeof(secret));
  std::memcpy(secret.data(), digest.data(), secret.size());
  return derive_key(secret, "sluice/lent-pages/1");
}

Result<PageNonce> random_page_nonce() {
  PageNonce nonce{};
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    return unavailable("the system gives no random numbers");
  }
  return nonce;
}

HmacTag page_proof(const HmacKey& key, PageEnd end, const PageNonce& lender,
                   const PageNonce& borrower, std::string_view party) {
  Hmac hmac(key);
  const std::byte side{static_cast<unsigned char>(end == PageEnd::kLender ? 'L' : 'B')};
  hmac.update({&side, 1});
  hmac.update(lender);
  hmac.update(borrower);
  hmac.update(std::as_bytes(std::span(party)));
  return hmac.finish();
}

Result<FileDescriptor> listen_for_pages(const std::string& name) {
  ASSIGN_OR_RETURN(const Address address, address_of(name));
  FileDescriptor listener = make_socket();
  if (!listener.valid() ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    return resource_exhausted(socket_error("listen at", name).message);
  }
  return listener;
}

Result<FileDescriptor> connect_for_pages(const std::string& name) {
  ASSIGN_OR_RETURN(const Address address, address_of(name));
  FileDescriptor peer = make_socket();
  if (!peer.valid() ||
      connect(peer.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0) {
    return socket_error("connect to", name);
  }
  return peer;
}

Result<bool> PageLink::send(const PageMessage& message, int descriptor) {
  Wire wire{};
  std::memcpy(wire.magic, kMagic.data(), kMagic.size());
  wire.version = kVersion;
  wire.kind = static_cast<std::uint32_t>(message.kind);
  std::memcpy(wire.nonce, message.nonce.data(), sizeof(wire.nonce));
  std::memcpy(wire.tag, message.tag.data(), sizeof(wire.tag));
  CHECK(message.party.size() <= kPartyBytes);
  std::memcpy(wire.party, message.party.data(), message.party.size());
  wire.bytes = message.bytes;
  wire.number = message.number;
  if (send_with_descriptor(fd(), std::as_bytes(std::span(&wire, 1)), descriptor) >= 0) return true;
  if (must_wait()) return false;
  return unavailable(fmt::format("the socket of pages: {}", std::strerror(errno)));
}

Result<std::optional<PageMessage>> PageLink::receive() {
  Wire wire{};
  ReceivedBytes received =
      receive_with_descriptor(fd(), std::as_writable_bytes(std::span(&wire, 1)));
  if (received.count < 0 && must_wait()) return std::optional<PageMessage>();
  if (received.count <= 0) return unavailable("the peer has closed the socket of pages");
  PageMessage message;
  message.descriptor = std::move(received.descriptor);
  if (received.count != sizeof(wire) || received.is_cut ||
      std::memcmp(wire.magic, kMagic.data(), kMagic.size()) != 0 || wire.version != kVersion ||
      wire.bytes < 0 || wire.number < 0) {
    return invalid_argument("a message of the socket of pages is not of this version");
  }
  message.kind = static_cast<PageMessageKind>(wire.kind);
  std::memcpy(message.nonce.data(), wire.nonce, sizeof(wire.nonce));
  std::memcpy(message.tag.data(), wire.tag, sizeof(wire.tag));
  message.party.assign(wire.party, strnlen(wire.party, kPartyBytes));
  message.bytes = wire.bytes;
  message.number = wire.number;
  return std::optional(std::move(message));
}

}  // namespace sluice
