#include "apps/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench_commands.h"
#include "apps/command_faults.h"
#include "apps/config_file.h"
#include "apps/engine_flags.h"
#include "apps/exit_code.h"
#include "apps/given_options.h"
#include "apps/number_range.h"
#include "apps/profile_options.h"
#include "apps/simulate_options.h"
#include "apps/snapshot_commands.h"

namespace sluice {
namespace {

void add_sampling_options(CLI::App& command, SamplingArguments& a) {
  const std::string group = "Sampling options";
  command.add_option("--max-tokens", a.max_tokens, "at least 1, cut at the context (default 256)")
      ->group(group);
  command.add_option("--min-tokens", a.min_tokens, "the fewest tokens of an answer")->group(group);
  command.add_option("--temperature", a.temperature, "0 = greedy")->group(group);
  command.add_option("--top-p", a.top_p, "above 0, at most 1")->group(group);
  command.add_option("--top-k", a.top_k, "0 = off")->group(group);
  command.add_option("--min-p", a.min_p, "0 to 1")->group(group);
  command.add_option("--seed", a.seed, "seed of the random numbers (default 0)")->group(group);
  command.add_option("--n", a.n, "choices (default 1)")->group(group);
  command.add_option("--repetition-penalty", a.repetition_penalty, "above 0")->group(group);
  command.add_option("--presence-penalty", a.presence_penalty, "-2 to 2")->group(group);
  command.add_option("--frequency-penalty", a.frequency_penalty, "-2 to 2")->group(group);
  command.add_option("--logit-bias", a.logit_bias, "ID=BIAS, repeatable")->group(group);
  command.add_option("--stop", a.stop, "end at this text, repeatable")
      ->group(group)
      ->allow_extra_args(false);
  command.add_option("--stop-token-ids", a.stop_token_ids, "end at these tokens: 1,2,3")
      ->group(group)
      ->delimiter(',');
  command.add_flag("--include-stop", a.include_stop, "keep the stop string in the text")
      ->group(group);
  command.add_flag("--ignore-eos", a.ignore_eos, "go on past the end-of-sequence token")
      ->group(group);
  command
      .add_option("--logprobs", a.logprobs,
                  "log-probabilities of each token and the K most likely; needs --json")
      ->group(group);
}

void add_listen_options(CLI::App& command, ServeArguments& a) {
  const std::string group = "Server options";
  CLI::Option* host =
      command.add_option("--host", a.host, "address or name to listen on (default 127.0.0.1)")
          ->group(group);
  command
      .add_option("--allowed-host", a.allowed_hosts,
                  "another name by which clients may call the server; may be repeated")
      ->group(group)
      ->allow_extra_args(false);
  command
      .add_option("--cors-origin", a.cors_origins,
                  "a web origin whose pages may call the server; may be repeated")
      ->group(group)
      ->allow_extra_args(false);
  CLI::Option* port =
      command.add_option("--port", a.port, "0 = any free one (default 8000)")->group(group);
  command
      .add_option("--uds", a.uds,
                  "listen on this Unix-domain socket, which only this user can open, instead of a "
                  "port")
      ->group(group)
      ->excludes(host)
      ->excludes(port);
  CLI::Option* certificate =
      command
          .add_option("--ssl-certfile", a.ssl_certfile,
                      "PEM file of the server's certificate, with those that signed it: clients "
                      "then call by https")
          ->group(group);
  command
      .add_option("--ssl-keyfile", a.ssl_keyfile, "PEM file of its key (default: in the same file)")
      ->group(group)
      ->needs(certificate);
  command.add_option("--max-connections", a.max_connections, "one more gets 503 (default 4096)")
      ->group(group);
  command
      .add_option("--max-queue", a.max_queue,
                  "requests that run or wait; one more gets 429 (default 1024)")
      ->group(group);
  command.add_option("--max-body-size", a.max_body_size, "of one request (default 8MiB)")
      ->group(group);
  command.add_option("--header-timeout", a.header_timeout, "seconds for a request's headers (10)")
      ->group(group);
  command.add_option("--body-timeout", a.body_timeout, "seconds for its body (60)")->group(group);
  command.add_option("--idle-timeout", a.idle_timeout, "seconds between two requests (75)")
      ->group(group);
  command
      .add_option("--write-timeout", a.write_timeout,
                  "seconds in which a client takes no byte (30)")
      ->group(group);
}

// Every command that serves HTTP has these, beside its sockets.
void add_service_options(CLI::App& command, ServeArguments& arguments) {
  const std::string group = "Server options";
  command
      .add_option("--drain-timeout", arguments.drain_timeout,
                  "seconds that running requests have after SIGTERM (30)")
      ->group(group);
  command
      .add_option("--workers", arguments.workers,
                  "threads that parse, render and tokenize (default 2)")
      ->group(group);
  command
      .add_flag("--strict-fields", arguments.strict_fields,
                "refuse requests with fields that the server does not know (default: ignore them)")
      ->group(group);
  command
      .add_option("--stream-keep-alive", arguments.stream_keep_alive,
                  "seconds of silence after which a stream gets a comment; 0 = never (15)")
      ->group(group);
  command.add_option("--access-log", arguments.access_log, "a file, stderr or off (stderr)")
      ->group(group);
  command
      .add_option("--metrics-namespace", arguments.metrics_namespace,
                  "in front of each metric's name (sluice)")
      ->group(group);
}

void add_sandbox_option(CLI::App& command, ServeArguments& a) {
  command
      .add_option("--sandbox", a.sandbox,
                  "strict: no start unless this machine has every layer of the sandbox; "
                  "best-effort: names the missing layers and goes on (default strict)")
      ->group("Server options");
}

void add_isolation_options(CLI::App& command, ServeArguments& a) {
  const std::string group = "Server options";
  command
      .add_option(
          "--isolation", a.isolation,
          "none: one engine for all clients; process: each API key and adapter has an engine in "
          "a sandboxed process of its own, on shared weights (default none)")
      ->group(group);
  add_sandbox_option(command, a);
  command
      .add_option("--max-functions", a.max_functions,
                  "processes at one time, one for each key and adapter that calls; a call that may "
                  "replace none of them gets 429; each has the KV memory of --kv-cache-memory "
                  "(default 8)")
      ->group(group);
  command
      .add_option("--function-idle", a.function_idle,
                  "seconds without a request after which a process ends (300)")
      ->group(group);
  command
      .add_option("--warm-workers", a.warm_workers,
                  "processes beside those of --max-functions that wait for the first call of a key "
                  "and adapter, so that it needs no start (default 1)")
      ->group(group);
  command
      .add_option("--turns", a.turns,
                  "off: all processes compute at the same time, for measurements; no key has a "
                  "fair share then (default on)")
      ->group(group);
}

CLI::Option* add_model(CLI::App& command, std::string& model, std::string& revision) {
  CLI::Option* option = command.add_option(
      "MODEL", model,
      "checkpoint directory, GGUF file, or name of a repository in the Hugging Face cache");
  command.add_option("--revision", revision, "of the repository: branch, tag or commit (main)");
  return option;
}

// How text goes into the model and comes out.
void add_text_options(CLI::App& command, ServeArguments& arguments) {
  const std::string group = "Server options";
  command
      .add_option("--chat-template", arguments.chat_template,
                  "a Jinja file, used instead of the checkpoint's templates")
      ->group(group);
  command
      .add_option("--tool-call-parser", arguments.parsers.tool_calls,
                  "the format of the model's tool calls: auto (from the chat template), none, or "
                  "a name such as hermes (auto)")
      ->group(group);
  command
      .add_option("--reasoning-parser", arguments.parsers.reasoning,
                  "the format of the model's reasoning, such as qwen3; none: it is text (none)")
      ->group(group);
}

void add_lend_options(CLI::App& command, LendArguments& a) {
  const std::string group = "Server options";
  command.add_option("--lend", a.url, "URL of a `sluice coordinator`: shares KV memory above MIN")
      ->group(group);
  command.add_option("--lend-token-file", a.token_file, "the coordinator's token")->group(group);
  command
      .add_option("--lend-device", a.device,
                  "the device's name at the coordinator; servers that share memory have the same "
                  "(default: the server's device, cpu or cuda:N)")
      ->group("Server options");
}

void add_lend_pages_options(CLI::App& command, LendArguments& a) {
  command
      .add_option("--lend-pages", a.lend_pages,
                  "with --lend: memory of this server above MIN, which others may use as a tier "
                  "while it is idle, such as 2GiB; it is back within 150 ms, a GPU's by consent")
      ->group("Server options");
  command
      .add_option("--borrow-pages", a.borrow_pages,
                  "with --lend: keeps KV blocks in memory that others lend by --lend-pages, at "
                  "most so much; encrypted")
      ->group("Server options");
}

CLI::App* add_serve(CLI::App& root, ServeArguments& arguments) {
  const std::string group = "Server options";
  CLI::App* command = root.add_subcommand("serve", "The OpenAI-compatible server");
  add_model(*command, arguments.model, arguments.revision);
  command
      ->add_option(
          "--config", arguments.config,
          "a YAML file of these options (model: ..., max-num-seqs: 64); those on the command "
          "line win")
      ->group(group);
  command
      ->add_option("--served-model-name", arguments.served_model_name,
                   "as clients call it (default: the directory's or repository's name)")
      ->group(group);
  command
      ->add_option("--api-key-file", arguments.api_key_file,
                   "lines of `NAME KEY [SETTING=VALUE ...]`, read again on SIGHUP (default: no key "
                   "is needed)")
      ->group(group);
  command
      ->add_option("--api-key", arguments.api_key,
                   "one key for all clients; other users of this machine can see it, so rather set "
                   "SLUICE_API_KEY")
      ->group(group)
      ->envname("SLUICE_API_KEY");
  add_listen_options(*command, arguments);
  add_service_options(*command, arguments);
  command
      ->add_option("--adapter-dir", arguments.adapter_dir,
                   "a folder; admin keys may load adapters below it while the server runs")
      ->group(group);
  add_isolation_options(*command, arguments);
  add_lend_options(*command, arguments.lend);
  add_lend_pages_options(*command, arguments.lend);
  add_warm_options(*command, arguments.warm);
  command
      ->add_option("--pin-limit", arguments.pin_limit,
                   fmt::format("the most that pinned prefixes need of KV memory, 0 to 1 (default "
                               "{})",
                               PinTable::kDefaultShare))
      ->group(group);
  command
      ->add_flag("--verify", arguments.verify,
                 "compare the snapshot's canary before the server is ready, not when it is idle")
      ->group(group);
  add_text_options(*command, arguments);
  add_engine_options(*command, arguments.engine);
  return command;
}

void add_agents_options(CLI::App& command, AgentsArguments& a) {
  const std::string group = "Options for agents";
  command
      .add_option("--agents", a.listen,
                  "HOST:PORT at which agents of other machines join (default: none)")
      ->group(group);
  command
      .add_option("--agents-token-file", a.token_file,
                  "a file with the token that all agents must send")
      ->group(group);
  command
      .add_option("--agents-ssl-certfile", a.ssl_certfile,
                  "PEM file of the certificate for agents, with those that signed it")
      ->group(group);
  command.add_option("--agents-ssl-keyfile", a.ssl_keyfile, "PEM file of its key")->group(group);
  command
      .add_option("--agents-ssl-cafile", a.ssl_cafile,
                  "PEM file of the certificates of which one must have signed an agent's")
      ->group(group);
  command
      .add_option("--agents-expiry", a.expiry_s,
                  "seconds of silence after which an agent is gone, 1 to 30 (default 5)")
      ->group(group)
      ->check(number_between(1, 30));
}

CLI::App* add_gateway(CLI::App& root, GatewayArguments& arguments) {
  const std::string group = "Server options";
  CLI::App* command = root.add_subcommand(
      "gateway", "The same server for many functions of many tenants, started by need");
  command
      ->add_option("--config", arguments.functions,
                   "the TOML file of backbones, adapters and tenants, read again on SIGHUP")
      ->group(group)
      ->required();
  command->add_option("--prices", arguments.prices, "a TOML price list (default: Alibaba's)")
      ->group(group);
  command
      ->add_option("--usage", arguments.usage,
                   "the SQLite file that keeps what functions used (default: one for each --config "
                   "in ~/.local/state/sluice)")
      ->group(group);
  add_listen_options(*command, arguments.serve);
  add_service_options(*command, arguments.serve);
  add_sandbox_option(*command, arguments.serve);
  command
      ->add_option("--max-functions", arguments.serve.max_functions,
                   "processes at one time; a call that may replace none of them waits for one that "
                   "is idle (default 8)")
      ->group(group);
  command
      ->add_option("--warm-workers", arguments.serve.warm_workers,
                   "processes beside those that wait on each backbone for the next cold call, "
                   "where they are worth their memory (default 0)")
      ->group(group);
  add_lend_options(*command, arguments.serve.lend);
  add_group_options(*command, arguments.group);
  add_agents_options(*command, arguments.agents);
  add_engine_options(*command, arguments.serve.engine);
  return command;
}

CLI::App* add_agent(CLI::App& root, AgentArguments& arguments) {
  const std::string group = "Agent options";
  CLI::App* command =
      root.add_subcommand("agent", "Runs functions for a gateway on another machine");
  command
      ->add_option("--join", arguments.join,
                   "the gateway's address for agents, such as https://10.0.0.1:8001")
      ->group(group)
      ->required();
  command
      ->add_option("--token-file", arguments.token_file,
                   "a file with the token of the gateway's --agents-token-file")
      ->group(group)
      ->required();
  command
      ->add_option("--name", arguments.name,
                   "of this agent; a later process of the same name replaces it (default: the "
                   "host's name)")
      ->group(group);
  command
      ->add_option("--backbone", arguments.backbones,
                   "NAME=DIRECTORY: where a backbone of the gateway is on this machine (default: "
                   "the same path); may be repeated")
      ->group(group)
      ->allow_extra_args(false);
  command
      ->add_option("--ssl-certfile", arguments.ssl_certfile,
                   "PEM file of this agent's certificate, with those that signed it")
      ->group(group);
  command->add_option("--ssl-keyfile", arguments.ssl_keyfile, "PEM file of its key")->group(group);
  command
      ->add_option("--ssl-cafile", arguments.ssl_cafile,
                   "PEM file of the certificates of which one signed that of the gateway")
      ->group(group);
  command
      ->add_option("--max-functions", arguments.serve.max_functions,
                   "processes at one time (default 8)")
      ->group(group);
  command
      ->add_option("--drain-timeout", arguments.serve.drain_timeout,
                   "seconds that running calls have after SIGTERM (30)")
      ->group(group);
  add_lend_options(*command, arguments.serve.lend);
  add_sandbox_option(*command, arguments.serve);
  add_engine_options(*command, arguments.serve.engine);
  return command;
}

CLI::App* add_generate(CLI::App& root, GenerateArguments& arguments) {
  CLI::App* command = root.add_subcommand("generate", "Continue one prompt, offline");
  add_model(*command, arguments.model, arguments.revision)->required();
  command->add_option("--prompt", arguments.prompt, "text; BOS is added as the tokenizer does");
  command->add_option("--prompt-ids", arguments.prompt_ids, "token ids as they are: 1,2,3");
  command->add_option("--chat", arguments.chat, "one user message, in the model's chat template");
  command->add_option("--model-name", arguments.model_name,
                      "one of the adapters (default: the base model)");
  command->add_flag("--json", arguments.json, "one JSON object on stdout, nothing else");
  command->add_option("--json-schema", arguments.grammar.json_schema,
                      "the output is valid for the JSON schema in this file");
  command->add_option("--regex", arguments.grammar.regex, "the output matches this expression");
  command->add_option("--grammar", arguments.grammar.grammar,
                      "the output is a text of the GBNF grammar in this file");
  add_sampling_options(*command, arguments.sampling);
  add_engine_options(*command, arguments.engine);
  return command;
}

CLI::App* add_tokenize(CLI::App& root, TokenizeArguments& arguments) {
  CLI::App* command = root.add_subcommand("tokenize", "Text on stdin to token ids");
  command
      ->add_option("MODEL", arguments.model, "checkpoint directory, GGUF file, or tokenizer.json")
      ->required();
  command->add_flag("--no-special", arguments.no_special, "add no BOS and no EOS");
  CLI::Option* jsonl =
      command->add_flag("--jsonl", arguments.jsonl,
                        "one JSON string per line in, one JSON array of ids per line out");
  command->add_option("--chat", arguments.chat, "render and tokenize a file with messages")
      ->excludes(jsonl);
  command->add_flag("--json", arguments.json, "{\"text\": .., \"ids\": ..}")->excludes(jsonl);
  command->add_option("--snapshot", arguments.snapshot,
                      "auto: keep the tokenizer in ~/.cache/sluice; off; or a file of `sluice "
                      "snapshot save` (default auto; needs a directory with a config.json)");
  return command;
}

CLI::App* add_doctor(CLI::App& root, DoctorArguments& arguments) {
  CLI::App* command =
      root.add_subcommand("doctor", "Shows what this machine has and what is missing");
  command->add_flag("--json", arguments.json, "one JSON object on stdout");
  return command;
}

// The option of an entry; a file may name the positional MODEL too.
Result<CLI::Option*> option_of(CLI::App& command, const ConfigEntry& entry) {
  const bool is_model = entry.name == "model";
  CLI::Option* option =
      command.get_option_no_throw(is_model ? std::string("MODEL") : "--" + entry.name);
  if (option != nullptr && entry.name != "config" && entry.name != "help") return option;
  const std::string near = nearest_option(command, "--" + entry.name);
  return invalid_argument(
      fmt::format("{}: there is no option '{}'{}", entry.where, entry.name,
                  near.empty() ? "" : "; did you mean '" + near.substr(2) + "'?"));
}

Status apply_entry(const ConfigEntry& entry, CLI::Option& option) {
  const bool is_flag = option.get_items_expected_max() == 0;
  const bool has_truth = entry.values.size() == 1 &&
                         (entry.values.front() == "true" || entry.values.front() == "false");
  if (is_flag && !has_truth) {
    return invalid_argument(fmt::format("{}: {} must be true or false", entry.where, entry.name));
  }
  try {
    for (const std::string& value : entry.values) {
      // A flag's own name may mean false: --no-enable-prefix-caching.
      option.add_result(is_flag ? option.get_flag_value(entry.name, value) : value);
    }
    option.run_callback();
  } catch (const CLI::Error& error) {
    return invalid_argument(fmt::format("{}: {}", entry.where, error.what()));
  }
  return {};
}

// The options of the file that the command line does not give.
Status apply_config(const std::string& path, CLI::App& command) {
  auto entries = read_config_file(path);
  if (!entries) return with_context("--config", std::move(entries).error());
  for (const ConfigEntry& entry : *entries) {
    ASSIGN_OR_RETURN(CLI::Option * option, option_of(command, entry));
    if (option->count() > 0) continue;
    RETURN_IF_ERROR(apply_entry(entry, *option));
    RETURN_IF_ERROR(check_excluded(entry, *option));
  }
  return {};
}

}  // namespace

std::optional<int> parse_command_line(int argc, char** argv, CommandLine& line) {
  if (argc > 1 && std::string_view(argv[1]) == "function") {  // for the program itself
    line.command = Command::kFunction;
    return std::nullopt;
  }
  CLI::App app{"Sluice serves large language models elastically."};
  app.name("sluice");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  CLI::App* serve = add_serve(app, line.serve);
  const CLI::App* gateway = add_gateway(app, line.gateway);
  const CLI::App* agent = add_agent(app, line.agent);
  const CLI::App* generate = add_generate(app, line.generate);
  const CLI::App* tokenize = add_tokenize(app, line.tokenize);
  const BenchCommands bench = add_bench(app, line.bench, line.offline);
  const CLI::App* simulate = add_simulate(app, line.simulate);
  const CLI::App* profile = add_profile(app, line.profile);
  const CLI::App* snapshot = add_snapshot(app, line.snapshot);
  const CLI::App* kv = add_kv(app, line.kv);
  const CLI::App* adapter = add_adapter(app, line.adapter);
  const CLI::App* functions = add_functions(app, line.functions);
  const CLI::App* place = add_place(app, line.place);
  const CLI::App* coordinator = add_coordinator(app, line.coordinator);
  add_doctor(app, line.doctor);
  const std::span<char* const> given(argv, static_cast<std::size_t>(argc));
  const Status known = check_command(app, given.subspan(std::min<std::size_t>(1, given.size())));
  if (!known) return report_error(known.error(), kExitUsage);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ExtrasError&) {
    return report_error(leftover(app), kExitUsage);
  } catch (const CLI::ParseError& error) {
    return report_error(invalid_argument(fmt::format("{} (see --help)", error.what())), kExitUsage);
  }
  if (serve->parsed() && !line.serve.config.empty()) {
    const Status applied = apply_config(line.serve.config, *serve);
    if (!applied) return report_error(applied.error(), kExitUsage);
  }
  if (const Status good = check_values({serve, gateway, agent, coordinator}); !good) {
    return report_error(good.error(), kExitUsage);
  }
  if (serve->parsed() && line.serve.model.empty()) {
    return report_error(invalid_argument("MODEL is required (see --help)"), kExitUsage);
  }
  line.command = serve->parsed()            ? Command::kServe
                 : gateway->parsed()        ? Command::kGateway
                 : agent->parsed()          ? Command::kAgent
                 : generate->parsed()       ? Command::kGenerate
                 : tokenize->parsed()       ? Command::kTokenize
                 : profile->parsed()        ? Command::kProfile
                 : bench.serve->parsed()    ? Command::kBenchServe
                 : bench.capacity->parsed() ? Command::kBenchCapacity
                 : bench.offline->parsed()  ? Command::kBenchOffline
                 : simulate->parsed()       ? Command::kSimulate
                 : snapshot->parsed()       ? Command::kSnapshot
                 : kv->parsed()             ? Command::kKv
                 : adapter->parsed()        ? Command::kAdapter
                 : functions->parsed()      ? Command::kFunctions
                 : place->parsed()          ? Command::kPlace
                 : coordinator->parsed()    ? Command::kCoordinator
                                            : Command::kDoctor;
  return std::nullopt;
}

}  // namespace sluice
