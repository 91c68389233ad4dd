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
#include "base/sha256.h"

namespace sluice {
namespace {

constexpr std::string_view kMagic{"sluicepg", 8};
constexpr std::uint32_t kVersion = 1;
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
};
static_assert(sizeof(Wire) == 152);

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

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int));

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

bool same_tag(const HmacTag& a, const HmacTag& b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
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
  iovec bytes{&wire, sizeof(wire)};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[kControlBytes] = {};
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  if (sendmsg(fd(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  if (must_wait()) return false;
  return unavailable(fmt::format("the socket of pages: {}", std::strerror(errno)));
}

Result<std::optional<PageMessage>> PageLink::receive() {
  Wire wire{};
  iovec bytes{&wire, sizeof(wire)};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  // Has room for one descriptor; the kernel closes what is beyond it.
  alignas(cmsghdr) char control[kControlBytes] = {};
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && must_wait()) return std::optional<PageMessage>();
  if (got <= 0) return unavailable("the peer has closed the socket of pages");
  PageMessage message;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
    message.descriptor = FileDescriptor(descriptor);
  }
  if (got != sizeof(wire) || (header.msg_flags & MSG_TRUNC) != 0 ||
      std::memcmp(wire.magic, kMagic.data(), kMagic.size()) != 0 || wire.version != kVersion ||
      wire.bytes < 0) {
    return invalid_argument("a message of the socket of pages is not of this version");
  }
  message.kind = static_cast<PageMessageKind>(wire.kind);
  std::memcpy(message.nonce.data(), wire.nonce, sizeof(wire.nonce));
  std::memcpy(message.tag.data(), wire.tag, sizeof(wire.tag));
  message.party.assign(wire.party, strnlen(wire.party, kPartyBytes));
  message.bytes = wire.bytes;
  return std::optional(std::move(message));
}

}  // namespace sluice
