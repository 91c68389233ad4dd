#include "base/descriptor_message.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace sluice {
namespace {

constexpr std::size_t kDescriptorBytes = CMSG_SPACE(sizeof(int));

msghdr message_of(iovec& bytes) {
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  return message;
}

}  // namespace

ssize_t send_with_descriptor(int socket, std::span<const std::byte> bytes, int descriptor) {
  iovec place{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message = message_of(place);
  alignas(cmsghdr) char control[kDescriptorBytes] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ReceivedBytes receive_with_descriptor(int socket, std::span<std::byte> bytes) {
  iovec place{bytes.data(), bytes.size()};
  msghdr message = message_of(place);
  alignas(cmsghdr) char control[kDescriptorBytes] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ReceivedBytes received;
  received.count = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received.count < 0) return received;
  received.is_cut = (message.msg_flags & MSG_TRUNC) != 0;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    received.descriptor = FileDescriptor(descriptor);
  }
  return received;
}

}  // namespace sluice
