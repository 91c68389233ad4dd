// The functions every template can call.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "chat_template/callables.h"
#include "chat_template/interpreter.h"
#include "chat_template/ops.h"
#include "chat_template/strftime.h"
#include "chat_template/text.h"
#include "chat_template/text_ops.h"

namespace sluice::jinja {

namespace {

using Args = const BuiltinArgs&;

// The sandbox of jinja2 refuses longer ranges.
constexpr std::int64_t kMaxRange = 100'000;
__extension__ using Wide = __int128;

Result<Value> range(Interpreter& in, Args args) {
  const auto positional = args.raw.positional;
  if (!args.raw.keyword.empty()) return type_error("range() takes no keyword arguments");
  if (positional.empty() || positional.size() > 3) {
    return type_error("range expected 1 to 3 arguments, got " + std::to_string(positional.size()));
  }
  for (const Value v : positional) {
    if (!v.is_integral()) return not_an_integer(v);
  }
  const std::int64_t start = positional.size() > 1 ? positional[0].as_int() : 0;
  const std::int64_t stop = positional[positional.size() > 1 ? 1 : 0].as_int();
  const std::int64_t step = positional.size() > 2 ? positional[2].as_int() : 1;
  if (step == 0) return python_error("ValueError", "range() arg 3 must not be zero");
  // In 128 bits: stop - start may overflow 64.
  const Wide distance = step > 0 ? Wide{stop} - start : Wide{start} - stop;
  const Wide stride = step > 0 ? Wide{step} : -Wide{step};
  if (distance > 0 && (distance + stride - 1) / stride > kMaxRange) {
    return python_error("OverflowError",
                        "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  if (distance <= 0) return Value::object(in.heap().make_object<Range>(0, 0, 1));
  return Value::object(in.heap().make_object<Range>(start, stop, step));
}

Result<Value> dict(Interpreter& in, Args args) {
  const auto positional = args.raw.positional;
  if (positional.size() > 1) {
    return type_error("dict expected at most 1 argument, got " + std::to_string(positional.size()));
  }
  std::vector<DictEntry> entries;
  if (!positional.empty()) {
    const Value source = positional[0];
    if (source.is_dict()) {
      const auto from = source.as_dict().entries;
      in.heap().step(from.size());
      entries.assign(from.begin(), from.end());
    } else {
      std::vector<Value> storage;
      ASSIGN_OR_RETURN(const auto pairs, in.collect(source, &storage));
      for (const Value pair : pairs) {
        std::vector<Value> pair_storage;
        ASSIGN_OR_RETURN(const auto parts, in.collect(pair, &pair_storage));
        if (parts.size() != 2) {
          return python_error("ValueError", "dictionary update sequence elements need length 2");
        }
        if (!is_hashable(parts[0])) {
          return type_error("unhashable type: '" + std::string(type_name(parts[0])) + "'");
        }
        entries.push_back({parts[0], parts[1]});
      }
    }
  }
  for (const auto& [key, value] : args.raw.keyword) entries.push_back({Value::string(key), value});
  return in.heap().make_dict(entries);
}

Result<Value> make_namespace(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(const Value attributes, dict(in, args));
  auto* result = in.heap().make_object<Namespace>();
  for (const DictEntry& entry : attributes.as_dict().entries) {
    if (!entry.key.is_string()) return type_error("namespace attributes must be strings");
    if (entry.key.text().starts_with("_")) {
      return python_error("SecurityError",
                          "Chat templates cannot store underscore-prefixed attributes on a "
                          "namespace, but got " +
                              quote(entry.key.text()) + ". Please rename the attribute.");
    }
    in.heap().charge(sizeof(DictEntry));
    result->attributes.emplace_back(entry.key.text(), entry.value);
  }
  return Value::object(result);
}

Result<Value> raise_exception(Interpreter& in, Args args) {
  return invalid_argument(std::string(to_text(in.heap(), args[0])));
}

Result<Value> strftime_now(Interpreter& in, Args args) {
  if (!args[0].is_string()) {
    return type_error("strftime() argument 1 must be str, not " + std::string(type_name(args[0])));
  }
  in.heap().scan(args[0].text().size() * 4);
  ASSIGN_OR_RETURN(const std::string text, format_time(in.now(), args[0].text()));
  return in.heap().make_string(text);
}

// cycler(...): .next(), .current, .reset().
class Cycler final : public Callable {
 public:
  enum class Action : std::uint8_t { kNone, kNext, kReset };
  explicit Cycler(std::vector<Value> items) : Callable("Cycler"), items_(std::move(items)) {}
  Result<Value> call(Interpreter&, const CallArgs&) override {
    return type_error("'Cycler' object is not callable");
  }
  Value attribute(std::string_view name) const override {
    if (name == "current") return items_[position_];
    if (name == "next") return Value::object(next_);
    if (name == "reset") return Value::object(reset_);
    return Value();
  }
  Value advance() { return items_[std::exchange(position_, (position_ + 1) % items_.size())]; }
  void reset() { position_ = 0; }
  void set_actions(Callable* next, Callable* reset_action) {
    next_ = next;
    reset_ = reset_action;
  }

 private:
  std::vector<Value> items_;
  std::size_t position_ = 0;
  Callable* next_ = nullptr;
  Callable* reset_ = nullptr;
};

class CyclerAction final : public Callable {
 public:
  CyclerAction(Cycler& cycler, Cycler::Action action)
      : Callable("method"), cycler_(cycler), action_(action) {}
  Result<Value> call(Interpreter&, const CallArgs&) override {
    if (action_ == Cycler::Action::kNext) return cycler_.advance();
    cycler_.reset();
    return Value::none();
  }

 private:
  Cycler& cycler_;
  Cycler::Action action_;
};

Result<Value> make_cycler(Interpreter& in, Args args) {
  const auto items = args.raw.positional;
  if (items.empty()) return python_error("RuntimeError", "at least one item has to be provided");
  in.heap().charge(items.size_bytes());
  auto* cycler = in.heap().make_object<Cycler>(std::vector<Value>(items.begin(), items.end()));
  cycler->set_actions(in.heap().make_object<CyclerAction>(*cycler, Cycler::Action::kNext),
                      in.heap().make_object<CyclerAction>(*cycler, Cycler::Action::kReset));
  return Value::object(cycler);
}

// joiner(sep): empty the first time it is called, the separator afterwards.
class Joiner final : public Callable {
 public:
  explicit Joiner(Value separator) : Callable("Joiner"), separator_(separator) {}
  Result<Value> call(Interpreter&, const CallArgs&) override {
    if (std::exchange(used_, true)) return separator_;
    return Value::string("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Result<Value> make_joiner(Interpreter& in, Args args) {
  return Value::object(
      in.heap().make_object<Joiner>(args[0].is_missing() ? Value::string(", ") : args[0]));
}

constexpr Builtin kGlobals[] = {
    {"cycler", "*", make_cycler},
    {"dict", "*", dict},
    {"joiner", "sep?", make_joiner},
    {"namespace", "*", make_namespace},
    {"raise_exception", "message", raise_exception},
    {"range", "*", range},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

const Builtin* find_global(std::string_view name) {
  for (const Builtin& global : kGlobals) {
    if (global.name == name) return &global;
  }
  return nullptr;
}

}  // namespace sluice::jinja
