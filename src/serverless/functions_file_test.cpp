#include "serverless/functions_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kHexA(64, 'a');
const std::string kHexB(64, 'b');

// A file with two tenants and one backbone for both, and `more` behind it (from line 13 on).
std::string file_with(std::string_view more, std::string_view before = "") {
  return fmt::format(
      "{}[[tenant]]\nname = \"a\"\nkey_sha256 = \"{}\"\n\n[[tenant]]\nname = \"b\"\n"
      "key_sha256 = \"{}\"\n[[backbone]]\nname = \"demo\"\ndirectory = \"m\"\n"
      "tenants = [\"*\"]\n\n{}",
      before, kHexA, kHexB, more);
}

std::string error_of(std::string_view text) {
  const auto file = parse_functions(text, "f.toml");
  return file ? "no error" : file.error().message;
}

TEST(FunctionsFileTest, FixedBatchesAndPreloading) {
  const auto file =
      parse_functions(file_with("",
                                "batching = \"fixed\"\nbatch_size = 10\nbatch_delay_ms = "
                                "500\n[memory]\npreload = false\n"),
                      "f.toml");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->batching, Batching::kFixed);
  EXPECT_EQ(file->fixed_batch.size, 10);
  EXPECT_EQ(file->fixed_batch.delay, std::chrono::milliseconds(500));
  EXPECT_FALSE(file->preload);
  EXPECT_THAT(error_of(file_with("", "batching = \"fixed\"\n")),
              HasSubstr("batch_size: is missing"));
  EXPECT_THAT(error_of(file_with("", "batch_size = 2\n")),
              HasSubstr("f.toml:1:1: batch_size: needs"));
  EXPECT_THAT(error_of(file_with("", "batch_delay_ms = 2\n")), HasSubstr("batch_delay_ms: needs"));
  EXPECT_THAT(error_of(file_with("", "batching = \"fixed\"\nbatch_size = 0\n")),
              HasSubstr("between 1"));
  EXPECT_THAT(error_of(file_with("", "[memory]\npreload = 1\n")), HasSubstr("true or false"));
}

constexpr std::string_view kSigner = "MCowBQYDK2VwAyEALYD9rcfKYTgqbWt57sAM4ZWYOAi9V90aQ0yoLH7+KXM=";

TEST(FunctionsFileTest, SignersAreEd25519Keys) {
  const auto read = [](std::string_view value) {
    return parse_functions(file_with("", fmt::format("require_signature = {}\n", value)), "f.toml");
  };
  for (const std::string& value :
       {fmt::format("\"{}\"", kSigner), fmt::format("[\"{}\"]", kSigner)}) {
    const auto file = read(value);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_EQ(file->signers.size(), 1U);
    EXPECT_EQ(ed25519_public_key_text(file->signers[0]), kSigner);
  }
  EXPECT_THAT(parse_functions(file_with(""), "f.toml")->signers, testing::IsEmpty());
  const auto error = [&](std::string_view value) {
    const auto file = read(value);
    return file ? "no error" : file.error().message;
  };
  // None of them may turn the check off.
  EXPECT_THAT(error("[]"), StartsWith("f.toml:1:1: require_signature: must be a text or a list"));
  EXPECT_THAT(error("true"), StartsWith("f.toml:1:1: require_signature: must be a text or a list"));
  EXPECT_THAT(error("\"operator\""),
              StartsWith("f.toml:1:1: require_signature: 'operator' is not an Ed25519 public key"));
  EXPECT_THAT(error(fmt::format("[\"{0}\", \"{0}\"]", kSigner)), HasSubstr("is given twice"));
}

TEST(FunctionsFileTest, ReadsEveryKey) {
  const auto file = parse_functions(
      fmt::format("batching = \"fill-or-expire\"\n[memory]\nhost = \"2GiB\"\ndevice = 1000\n"
                  "[defaults]\nttft_slo_ms = 700\nidle_s = 1.5\n"
                  "[[tenant]]\nname = \"a\"\nkey_sha256 = [\"{0}\", \"{1}\"]\n"
                  "requests_per_minute = 60\ntokens_per_minute = 1_000\nconcurrency = 4\n"
                  "money_per_day = 2.5\n"
                  "[[backbone]]\nname = \"org/demo\"\ndirectory = \"m\"\ntenants = \"a\"\n"
                  "idle_s = 9\n"
                  "[[adapter]]\nname = \"poet\"\nbackbone = \"org/demo\"\ntenant = \"a\"\n"
                  "directory = \"p@q@sha256:{0}\"\nttft_slo_ms = 250.5\n"
                  "[aliases]\nx = \"y\"\ny = \"poet\"\n",
                  kHexA, kHexB),
      "f.toml");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->batching, Batching::kFillOrExpire);
  EXPECT_EQ(file->host_memory, std::int64_t{2} << 30);
  EXPECT_EQ(file->device_memory, 1000);
  ASSERT_EQ(file->tenants.size(), 1U);
  EXPECT_EQ(file->tenants[0].keys.size(), 2U);
  EXPECT_EQ(to_hex(file->tenants[0].keys[1]), kHexB);
  EXPECT_EQ(file->tenants[0].quotas, (Quotas{60, 1000, 4, 2.5}));
  ASSERT_EQ(file->functions.size(), 2U);
  const FunctionSpec& base = file->functions[0];
  EXPECT_EQ(base.name, "org/demo");
  EXPECT_EQ(base.adapter, "");
  EXPECT_EQ(base.idle, std::chrono::seconds(9));
  EXPECT_EQ(base.ttft_slo, std::chrono::milliseconds(700));
  const FunctionSpec& poet = file->functions[1];
  EXPECT_EQ(poet.adapter, "p@q");
  EXPECT_EQ(to_hex(*poet.adapter_digest), kHexA);
  EXPECT_EQ(poet.ttft_slo, std::chrono::microseconds(250500));
  EXPECT_EQ(poet.idle, std::chrono::milliseconds(1500));
  ASSERT_EQ(file->aliases.size(), 2U);
  EXPECT_EQ(file->aliases[0].target, "poet");
  EXPECT_EQ(file->aliases[1].target, "poet");
}

TEST(FunctionsFileTest, AdminKeysAreNoTenants) {
  const std::string admin(64, 'c');
  const auto file = parse_functions(
      file_with("", fmt::format("[admin]\nkey_sha256 = \"{}\"\n", admin)), "f.toml");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->admin_keys.size(), 1U);
  EXPECT_EQ(to_hex(file->admin_keys[0]), admin);
  EXPECT_EQ(file->tenants.size(), 2U);
  EXPECT_EQ(error_of(file_with("", fmt::format("[admin]\nkey_sha256 = \"{}\"\n", kHexA))),
            "f.toml:5:1: tenant.key_sha256: the admin has this key already; give each its own");
  EXPECT_EQ(error_of(file_with("", "[admin]\n")),
            "f.toml:1:1: admin.key_sha256: is missing; give the SHA-256 of a key");
}

TEST(FunctionsFileTest, BackboneIsAFunctionOfEachOfItsTenants) {
  const auto file = parse_functions(file_with(""), "f.toml");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->functions.size(), 2U);
  EXPECT_EQ(file->functions[0].tenant, 0);
  EXPECT_EQ(file->functions[1].tenant, 1);
  EXPECT_EQ(file->functions[1].name, "demo");
}

struct BadFile {
  std::string more;
  std::string error;
};

TEST(FunctionsFileTest, ErrorsNamePlaceAndKey) {
  const std::string adapter =
      "[[adapter]]\nname = \"p\"\nbackbone = \"demo\"\ntenant = \"a\"\ndirectory = \"d\"\n";
  const BadFile files[] = {
      {"[[adapter]]\nname = \"p\"\nbackbone = \"demi\"\ntenant = \"a\"\ndirectory = \"d\"\n",
       "f.toml:15:1: adapter.backbone: there is no backbone 'demi'; did you mean 'demo'?"},
      {"[[adapter]]\nname = \"p\"\nbackbone = \"demo\"\ntenant = \"x\"\ndirectory = \"d\"\n",
       "f.toml:16:1: adapter.tenant: there is no tenant 'x'; add a [[tenant]] of this name"},
      {adapter + "direktory = \"d\"\n",
       "f.toml:18:1: adapter.direktory: is not a known key; did you mean 'directory'?"},
      {adapter + "zzzzzzzz = 1\n",
       "f.toml:18:1: adapter.zzzzzzzz: is not a known key; the keys here are name, backbone, "
       "tenant, directory, ttft_slo_ms, idle_s"},
      {adapter + adapter,
       "f.toml:19:1: adapter.name: tenant 'a' has an adapter 'p' already; rename or remove one of "
       "them"},
      {adapter + "ttft_slo_ms = 0\n",
       "f.toml:18:1: adapter.ttft_slo_ms: must be a number above 0 and at most 3600000"},
      {adapter + "idle_s = nan\n", "f.toml:18:1: adapter.idle_s: must be a number above 0"},
      {"[[adapter]]\nname = \"p\"\n", "f.toml:13:1: adapter.backbone: is missing; give a text"},
      {"[[adapter]]\nname = \"demo\"\nbackbone = \"demo\"\ntenant = \"a\"\ndirectory = \"d\"\n",
       "f.toml:14:1: adapter.name: 'demo' is the name of a backbone; rename or remove"},
      {"[[adapter]]\nname = \"a:b\"\nbackbone = \"demo\"\ntenant = \"a\"\ndirectory = \"d\"\n",
       "f.toml:14:1: adapter.name: 'a:b' must be 1 to 128 letters, digits or any of '.-_/'"},
      {"[[adapter]]\nname = \"p\"\nbackbone = \"demo\"\ntenant = \"a\"\n"
       "directory = \"d@sha256:12\"\n",
       "f.toml:17:1: adapter.directory: '@sha256:' must be followed by 64 digits"},
      {"[[adapter]]\nname = \"p\"\nbackbone = \"demo\"\ntenant = \"a\"\ndirectory = 7\n",
       "f.toml:17:1: adapter.directory: must be a text that is not empty"},
      {"[[tenant]]\nname = \"a\"\nkey_sha256 = \"" + std::string(64, 'c') + "\"\n",
       "f.toml:14:1: tenant.name: there is a tenant 'a' already; rename or remove one of them"},
      {"[[tenant]]\nname = \"c\"\nkey_sha256 = \"" + kHexA + "\"\n",
       "f.toml:15:1: tenant.key_sha256: tenant 'a' has this key already; give each its own"},
      {"[[tenant]]\nname = \"c\"\nkey_sha256 = \"sk-plain\"\n",
       "f.toml:15:1: tenant.key_sha256: must be 64 digits of 0-9 and a-f"},
      {"[[tenant]]\nname = \"c\"\n", "f.toml:13:1: tenant.key_sha256: is missing"},
      {"[[backbone]]\nname = \"demo\"\ndirectory = \"m\"\n",
       "f.toml:14:1: backbone.name: there is a backbone 'demo' already; rename or remove"},
      {"[[backbone]]\nname = \"x\"\ndirectory = \"m\"\ntenants = [\"a\", \"a\"]\n",
       "f.toml:16:1: backbone.tenants: 'a' is given twice"},
      {"[[backbone]]\nname = \"x\"\ndirectory = \"m\"\ntenants = [1]\n",
       "f.toml:16:1: backbone.tenants: must be a text or a list of texts"},
      {"[aliases]\nx = \"nothing\"\n",
       "f.toml:14:1: aliases.x: there is no model 'nothing'; give the name of a [[backbone]], an "
       "[[adapter]] or an alias"},
      {"[aliases]\nx = \"y\"\ny = \"z\"\nz = \"y\"\n",
       "f.toml:14:1: aliases.x: a cycle: x -> y -> z -> y; one of them must name a [[backbone]]"},
      {"[aliases]\nx = \"x\"\n", "f.toml:14:1: aliases.x: a cycle: x -> x"},
      {"[aliases]\ndemo = \"demo\"\n",
       "f.toml:14:1: aliases.demo: is the name of a backbone or adapter already; rename"},
      {"[memory]\nhost = \"4 apples\"\n", "f.toml:14:1: memory.host: must be a size such as"},
      {"[memory]\nhots = \"4GiB\"\n",
       "f.toml:14:1: memory.hots: is not a known key; did you mean 'host'?"},
      {"[[adaptor]]\nname = \"p\"\n",
       "f.toml:13:3: adaptor: is not a known key; did you mean 'adapter'?"},
      {"x = = 1\n", "f.toml:13:5: not TOML: "},
      {"[[}a]]\n", "f.toml:13:3: not TOML: "},
      {"[defaults]\nidle_s = 1\nidle_s = 2\n", "f.toml:15:"},
  };
  for (const BadFile& file : files) {
    EXPECT_THAT(error_of(file_with(file.more)), StartsWith(file.error)) << file.more;
  }
}

TEST(FunctionsFileTest, QuotasAreAboveZero) {
  for (const char* quota :
       {"requests_per_minute = 0", "requests_per_minute = -1", "requests_per_minute = 1.5",
        "tokens_per_minute = 0", "concurrency = 0", "concurrency = 3_000_000_000",
        "money_per_day = 0", "money_per_day = -0.5", "money_per_day = inf"}) {
    const std::string text = fmt::format("[[tenant]]\nname = \"c\"\nkey_sha256 = \"{}\"\n{}\n",
                                         std::string(64, 'c'), quota);
    const std::string key(quota, std::string_view(quota).find(' '));
    const std::string error = error_of(file_with(text));
    EXPECT_THAT(error, StartsWith(fmt::format("f.toml:16:1: tenant.{}: must be", key)));
    EXPECT_THAT(error, EndsWith("; leave the key out for no limit"));
  }
}

TEST(FunctionsFileTest, FilesWithoutFunctionsAreRefused) {
  EXPECT_EQ(error_of(""), "f.toml: has no [[tenant]]; give one at least");
  EXPECT_THAT(error_of(fmt::format("[[tenant]]\nname = \"a\"\nkey_sha256 = \"{}\"\n", kHexA)),
              HasSubstr("has no [[backbone]]"));
  EXPECT_THAT(error_of(fmt::format("[[tenant]]\nname = \"a\"\nkey_sha256 = \"{}\"\n"
                                   "[[backbone]]\nname = \"b\"\ndirectory = \"d\"\n",
                                   kHexA)),
              HasSubstr("has no function"));
}

TEST(FunctionsFileTest, TextThatTheLibraryCannotReadIsRefusedBefore) {
  std::string key = "a";
  for (int i = 0; i < 200'000; ++i) key += ".a";
  EXPECT_EQ(error_of("x = 1\n" + key + " = 1\n"),
            "f.toml:2:66: a key of too many parts is not accepted");
  EXPECT_THAT(error_of("# \u00e4 \"\nx = \"\u00e4\"\n\u02e2 = 1\n"),
              StartsWith("f.toml:3:1: not TOML: "));
  EXPECT_EQ(error_of("x = \"a\\\"b\" # '''\ny = '\\'\nz = '''a\n'''\n"),
            "f.toml:3:5: a string of several lines is not accepted");
  EXPECT_THAT(error_of("x = \"a\n\u00e4 = 1\n"), StartsWith("f.toml:1:7: not TOML: "));
  EXPECT_THAT(error_of("x = \"a\\\n"), StartsWith("f.toml:1:"));
}

// The time is the test's own limit: a parser that compares all pairs takes minutes.
TEST(FunctionsFileTest, TenThousandFunctions) {
  std::string more;
  for (int i = 0; i < 10'000; ++i) {
    more += fmt::format(
        "[[adapter]]\nname = \"f{}\"\nbackbone = \"demo\"\ntenant = \"{}\"\ndirectory = \"d\"\n", i,
        i % 2 == 0 ? "a" : "b");
  }
  const auto file = parse_functions(file_with(more), "f.toml");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->functions.size(), 10'002U);
  EXPECT_EQ(file->functions.back().name, "f9999");
  EXPECT_EQ(file->functions.back().tenant, 1);
}

TEST(FunctionsFileTest, ExampleIsComplete) {
  const auto file = load_functions("examples/functions.toml");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tenants.size(), 2U);
  EXPECT_THAT(file->tenants[0].keys, ElementsAre(sha256("sk-example-tenant-a-0001")));
  EXPECT_THAT(file->tenants[1].keys, ElementsAre(sha256("sk-example-tenant-b-0001")));
  ASSERT_EQ(file->functions.size(), 4U);
  EXPECT_EQ(file->functions[2].name, "poet");
  EXPECT_EQ(file->functions[2].tenant, 0);
  EXPECT_EQ(file->functions[2].idle, std::chrono::seconds(5));
  EXPECT_TRUE(std::filesystem::exists(file->functions[3].adapter + "/adapter_config.json"));
}

TEST(FunctionsFileTest, BackbonesThatCannotBeLoadedAreNamedWithTheirLine) {
  const BackboneSpec backbone = {"demo", "/m", {10, 1}};
  EXPECT_EQ(unloadable_backbone("f.toml", backbone, not_found("/m: no weights")).message,
            "f.toml:10:1: backbone.directory: '/m' of backbone 'demo' cannot be loaded: /m: no "
            "weights; give the directory of a Hugging Face checkpoint");
  // Another directory does not help against a full machine.
  const Error full = unloadable_backbone("f.toml", backbone, resource_exhausted("no memory"));
  EXPECT_THAT(full.message, EndsWith("cannot be loaded: no memory"));
  EXPECT_EQ(full.code, ErrorCode::kResourceExhausted);
}

// A folder of its own with a functions file, whose backbone is in m.
class FunctionsFolderTest : public testing::Test {
 protected:
  FunctionsFolderTest()
      : folder_(testing::TempDir() + "/functions_folder_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~FunctionsFolderTest() override { std::filesystem::remove_all(folder_); }

  // A file below the folder.
  void write(const std::string& name, std::string_view text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    EXPECT_TRUE(write_file(path.string(), text));
  }
  // The error of load_functions() behind the folder's name; empty: none.
  std::string error() const {
    const auto file = load_functions((folder_ / "f.toml").string());
    return file ? "" : file.error().message.substr(folder_.string().size());
  }

  const std::filesystem::path folder_;
};

TEST_F(FunctionsFolderTest, DirectoriesMustBeThere) {
  write("f.toml", file_with(""));
  EXPECT_THAT(error(), StartsWith("/f.toml:10:1: backbone.directory: there is no directory '"));
  EXPECT_THAT(error(), EndsWith("'; give one that exists, relative to this file or absolute"));
}

TEST_F(FunctionsFolderTest, DirectoriesMustHoldACheckpointOrAnAdapter) {
  write("f.toml", file_with("[[adapter]]\nname = \"x\"\nbackbone = \"demo\"\ntenant = \"a\"\n"
                            "directory = \"x\"\n"));
  write("m/README.md", "");
  EXPECT_THAT(error(), StartsWith("/f.toml:10:1: backbone.directory: '"));
  EXPECT_THAT(error(), EndsWith("/m' holds no checkpoint, since it has no config.json; "
                                "give the directory of a Hugging Face checkpoint"));
  write("m/config.json", "{}");
  write("x/adapter_model.safetensors", "");
  EXPECT_THAT(error(), HasSubstr("adapter.directory: '"));
  EXPECT_THAT(error(), EndsWith("/x' holds no adapter, since it has no adapter_config.json; give "
                                "the directory of an adapter that PEFT's save_pretrained() has "
                                "written"));
  write("x/adapter_config.json", "{}");
  EXPECT_EQ(error(), "");
}

}  // namespace
}  // namespace sluice
