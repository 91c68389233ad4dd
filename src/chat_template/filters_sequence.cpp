// Filters over sequences. Filters that are generators in jinja2 are lazy here too.
#include <algorithm>
#include <string>

#include "chat_template/builtins.h"
#include "chat_template/interpreter.h"
#include "chat_template/iterators.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"
#include "chat_template/text_ops.h"

namespace sluice::jinja {

namespace {

using Args = const BuiltinArgs&;

Error filter_argument_error(std::string_view message) {
  return python_error("FilterArgumentError", message);
}

Value generator(Interpreter& in, Generator::Next next) {
  return Value::object(in.heap().make_object<Generator>(std::move(next)));
}

// Text compares without regard to case by default.
Value sort_key(Interpreter& in, Value value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  in.heap().scan(value.text().size());
  return in.heap().make_string(to_lower(value.text()));
}

struct Keyed {
  Value key;
  Value item;
};

// Python's sorted(): stable; the first failing comparison is the error.
Status sort_keyed(Interpreter& in, std::vector<Keyed>& items, bool reverse) {
  Status failed;
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (!failed || !in.heap().exceeded().empty()) return false;
    const Result<bool> result = compare(in.heap(), Order::kLess, a.key, b.key);
    if (!result) failed = result.error();
    return result && *result;
  };
  if (reverse) {
    std::stable_sort(items.begin(), items.end(),
                     [&](const Keyed& a, const Keyed& b) { return less(b, a); });
  } else {
    std::stable_sort(items.begin(), items.end(), less);
  }
  RETURN_IF_ERROR(std::move(failed));
  return in.check_budget();
}

Value list_of(Interpreter& in, const std::vector<Keyed>& items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const Keyed& keyed : items) values.push_back(keyed.item);
  return in.heap().make_list(values);
}

Result<Value> sort(Interpreter& in, Args args) {
  std::vector<Value> storage;
  ASSIGN_OR_RETURN(const auto items, in.collect(args[0], &storage));
  const bool case_sensitive = is_truthy(args[2]);
  // "a,b" sorts by several attributes.
  std::vector<Value> paths;
  if (args[3].is_string()) {
    for (std::string_view rest = args[3].text();;) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      paths.push_back(Value::string(rest.substr(0, comma)));
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(args[3]);
  }
  std::vector<Keyed> keyed;
  for (const Value item : items) {
    std::vector<Value> keys;
    for (const Value path : paths) {
      ASSIGN_OR_RETURN(const Value key, attribute_path(in, item, path, Value()));
      keys.push_back(sort_key(in, key, case_sensitive));
    }
    keyed.push_back({in.heap().make_list(keys), item});
  }
  RETURN_IF_ERROR(sort_keyed(in, keyed, is_truthy(args[1])));
  return list_of(in, keyed);
}

Result<Value> dict_sort(Interpreter& in, Args args) {
  const bool by_value = args[2].is_string() && args[2].text() == "value";
  if (!args[2].is_missing() && !by_value && !(args[2].is_string() && args[2].text() == "key")) {
    return filter_argument_error("You can only sort by either \"key\" or \"value\"");
  }
  if (args[0].is_undefined()) return undefined_error(args[0]);
  if (!args[0].is_dict()) {
    return python_error("AttributeError", "'" + std::string(type_name(args[0])) +
                                              "' object has no attribute 'items'");
  }
  std::vector<Keyed> keyed;
  for (const DictEntry& entry : args[0].as_dict().entries) {
    const Value pair[] = {entry.key, entry.value};
    keyed.push_back({sort_key(in, by_value ? entry.value : entry.key, is_truthy(args[1])),
                     in.heap().make_tuple(pair)});
  }
  RETURN_IF_ERROR(sort_keyed(in, keyed, is_truthy(args[3])));
  return list_of(in, keyed);
}

Result<Value> group_by(Interpreter& in, Args args) {
  std::vector<Value> storage;
  ASSIGN_OR_RETURN(const auto items, in.collect(args[0], &storage));
  const bool case_sensitive = is_truthy(args[3]);
  std::vector<Keyed> keyed;
  for (const Value item : items) {
    ASSIGN_OR_RETURN(const Value key, attribute_path(in, item, args[1], args[2]));
    keyed.push_back({sort_key(in, key, case_sensitive), item});
  }
  RETURN_IF_ERROR(sort_keyed(in, keyed, false));
  std::vector<Value> groups;
  for (std::size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const std::size_t first = i;
    while (i < keyed.size() && equals(in.heap(), keyed[first].key, keyed[i].key)) {
      members.push_back(keyed[i++].item);
    }
    Value key = keyed[first].key;
    if (!case_sensitive) {
      ASSIGN_OR_RETURN(key, attribute_path(in, members[0], args[1], args[2]));
    }
    const Value pair[] = {key, in.heap().make_list(members)};
    const Value group = in.heap().make_tuple(pair);
    in.mark_group(group);
    groups.push_back(group);
    RETURN_IF_ERROR(in.check_budget());
  }
  return in.heap().make_list(groups);
}

Result<Value> unique(Interpreter& in, Args args) {
  const Value value = args[0];
  const Value path = args[2];
  const bool case_sensitive = is_truthy(args[1]);
  Iterator* source = nullptr;
  std::vector<Value> seen;
  return generator(in, [=](Interpreter& i, Value* out) mutable -> Result<bool> {
    if (source == nullptr) {
      ASSIGN_OR_RETURN(source, i.iterate(value));
    }
    while (true) {
      ASSIGN_OR_RETURN(const bool more, source->next(i, out));
      if (!more) return false;
      ASSIGN_OR_RETURN(Value key, attribute_path(i, *out, path, Value()));
      key = sort_key(i, key, case_sensitive);
      if (!is_hashable(key)) {
        return type_error("unhashable type: '" + std::string(type_name(key)) + "'");
      }
      const bool known =
          std::any_of(seen.begin(), seen.end(), [&](Value v) { return equals(i.heap(), v, key); });
      RETURN_IF_ERROR(i.check_budget());
      if (known) continue;
      seen.push_back(key);
      return true;
    }
  });
}

template <Order order>
Result<Value> extreme(Interpreter& in, Args args) {
  std::vector<Value> storage;
  ASSIGN_OR_RETURN(const auto items, in.collect(args[0], &storage));
  if (items.empty()) return in.undefined_hint("No aggregated item, sequence was empty.");
  Value best;
  Value best_key;
  for (const Value item : items) {
    ASSIGN_OR_RETURN(Value key, attribute_path(in, item, args[2], Value()));
    key = sort_key(in, key, is_truthy(args[1]));
    bool better = best.is_missing();
    if (!better) {
      ASSIGN_OR_RETURN(better, compare(in.heap(), order, key, best_key));
    }
    if (!better) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Result<Value> first(Interpreter& in, Args args) {
  ASSIGN_OR_RETURN(Iterator * source, in.iterate(args[0]));
  Value item;
  ASSIGN_OR_RETURN(const bool more, source->next(in, &item));
  return more ? item : in.undefined_hint("No first item, sequence was empty.");
}

// Returns the items of a value that Python's reversed() accepts, otherwise an error.
Result<std::vector<Value>> reversed_items(Interpreter& in, Value value) {
  const bool object = value.is(Kind::kObject);
  const bool reversible = value.is_sequence() || value.is_string() || value.is_dict() ||
                          value.is_undefined() ||
                          (object && (value.as_object()->type() == ObjectType::kRange ||
                                      value.as_object()->type() == ObjectType::kDictView));
  if (!reversible) {
    return type_error("'" + std::string(type_name(value)) + "' object is not reversible");
  }
  std::vector<Value> storage;
  ASSIGN_OR_RETURN(const auto items, in.collect(value, &storage));
  std::vector<Value> result(items.rbegin(), items.rend());
  return result;
}

Result<Value> last(Interpreter& in, Args args) {
  if (args[0].is_undefined()) {
    // reversed() needs __getitem__, which undefined values refuse only when it is called.
    return in.undefined_hint("No last item, sequence was empty.");
  }
  const std::int64_t length = length_of(in.heap(), args[0]);
  const Value item = item_at(in.heap(), args[0], Value::integer(length - 1));
  if (!item.is_missing()) return item;
  ASSIGN_OR_RETURN(const std::vector<Value> items, reversed_items(in, args[0]));
  return items.empty() ? in.undefined_hint("No last item, sequence was empty.") : items.front();
}

Result<Value> reverse(Interpreter& in, Args args) {
  if (args[0].is_string()) {
    return slice(in.heap(), args[0], Value(), Value(), Value::integer(-1));
  }
  Result<std::vector<Value>> items = reversed_items(in, args[0]);
  if (items) {
    const std::string_view type = args[0].is(Kind::kList) ? "list_reverseiterator" : "reversed";
    return Value::object(
        in.heap().make_object<ItemsIterator>(in.heap().make_list(*items).items(), type));
  }
  std::vector<Value> storage;
  const auto all = in.collect(args[0], &storage);
  if (!all) {
    // jinja2 takes every TypeError for this one.
    if (!all.error().message.starts_with("TypeError")) return all.error();
    return filter_argument_error("argument must be iterable");
  }
  const std::vector<Value> backwards(all->rbegin(), all->rend());
  return in.heap().make_list(backwards);
}

Result<Value> list(Interpreter& in, Args args) {
  std::vector<Value> storage;
  ASSIGN_OR_RETURN(const auto items, in.collect(args[0], &storage));
  return in.heap().make_list(items);
}

Result<Value> items(Interpreter& in, Args args) {
  const Value value = args[0];
  Iterator* source = nullptr;
  if (value.is_dict()) {
    source = in.heap().make_object<DictIterator>(value.as_dict(), DictView::Part::kItems,
                                                 "dict_itemiterator");
  }
  return generator(in, [=](Interpreter& i, Value* out) -> Result<bool> {
    if (source != nullptr) return source->next(i, out);
    if (value.is_undefined()) return false;
    return type_error("Can only get item pairs from a mapping.");
  });
}

Result<Value> length(Interpreter& in, Args args) {
  const std::int64_t count = length_of(in.heap(), args[0]);
  if (count < 0) {
    return type_error("object of type '" + std::string(type_name(args[0])) + "' has no len()");
  }
  return Value::integer(count);
}

Result<Value> sum(Interpreter& in, Args args) {
  std::vector<Value> storage;
  ASSIGN_OR_RETURN(const auto all, in.collect(args[0], &storage));
  Value total = args[2].is_missing() ? Value::integer(0) : args[2];
  if (total.is_string()) {
    return type_error("sum() can't sum strings [use ''.join(seq) instead]");
  }
  for (const Value item : all) {
    ASSIGN_OR_RETURN(const Value part, attribute_path(in, item, args[1], Value()));
    ASSIGN_OR_RETURN(total, arithmetic(in.heap(), Arithmetic::kAdd, total, part));
    RETURN_IF_ERROR(in.check_budget());
  }
  return total;
}

Result<Value> batch(Interpreter& in, Args args) {
  const Value value = args[0];
  const std::int64_t count = args[1].is_integral() ? args[1].as_int() : -1;
  const Value fill = args[2];
  Iterator* source = nullptr;
  Value pending;
  bool done = false;
  return generator(in, [=](Interpreter& i, Value* out) mutable -> Result<bool> {
    if (done) return false;
    if (source == nullptr) {
      ASSIGN_OR_RETURN(source, i.iterate(value));
    }
    std::vector<Value> row;
    if (!pending.is_missing()) row.push_back(std::exchange(pending, Value()));
    while (true) {
      Value item;
      ASSIGN_OR_RETURN(const bool more, source->next(i, &item));
      RETURN_IF_ERROR(i.check_budget());
      if (!more) break;
      if (static_cast<std::int64_t>(row.size()) == count) {
        pending = item;
        *out = i.heap().make_list(row);
        return true;
      }
      row.push_back(item);
    }
    done = true;
    if (row.empty()) return false;
    while (!fill.is_missing() && !fill.is_none() && static_cast<std::int64_t>(row.size()) < count) {
      i.heap().charge(sizeof(Value));
      RETURN_IF_ERROR(i.check_budget());
      row.push_back(fill);
    }
    *out = i.heap().make_list(row);
    return true;
  });
}

Result<Value> slice_filter(Interpreter& in, Args args) {
  const Value value = args[0];
  const Value count = args[1];
  const Value fill = args[2];
  std::int64_t number = -1;
  Value all;
  return generator(in, [=](Interpreter& i, Value* out) mutable -> Result<bool> {
    if (number < 0) {
      number = 0;
      std::vector<Value> storage;
      ASSIGN_OR_RETURN(const auto items, i.collect(value, &storage));
      all = i.heap().make_list(items);
    }
    if (!count.is_integral()) return not_an_integer(count);
    const std::int64_t slices = count.as_int();
    if (slices == 0) return python_error("ZeroDivisionError", "integer division or modulo by zero");
    if (number >= slices) return false;
    const auto size = static_cast<std::int64_t>(all.items().size());
    const std::int64_t per_slice = size / slices;
    const std::int64_t extra = size % slices;
    const std::int64_t begin = number * per_slice + std::min(number, extra);
    const std::int64_t taken = per_slice + (number < extra ? 1 : 0);
    const auto part =
        all.items().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(taken));
    std::vector<Value> row(part.begin(), part.end());
    if (!fill.is_missing() && !fill.is_none() && number >= extra) row.push_back(fill);
    ++number;
    *out = i.heap().make_list(row);
    return true;
  });
}

// --- map, select and their relatives: the rest of the arguments names a filter or a test.

Result<const Builtin*> named_builtin(Value name, bool is_filter) {
  const Builtin* found = nullptr;
  if (name.is_string()) found = is_filter ? find_filter(name.text()) : find_test(name.text());
  if (found != nullptr) return found;
  Heap scratch(1 << 12, 1 << 12);
  std::string message =
      std::string(is_filter ? "No filter" : "No test") + " named " + to_repr(scratch, name) + ".";
  if (name.is_undefined()) {
    message += " (" + undefined_message(*name.as_undefined()) +
               "; did you forget to quote the callable name?)";
  }
  return python_error("TemplateRuntimeError", message);
}

struct OwnedArgs {
  std::vector<Value> positional;  // the first is replaced by each item
  std::vector<KeywordArg> keyword;
};

Result<Value> map(Interpreter& in, Args args) {
  const Value value = args.raw.positional[0];
  const auto names = args.raw.positional.subspan(1);
  OwnedArgs rest{{names.begin(), names.end()}, {args.raw.keyword.begin(), args.raw.keyword.end()}};
  Iterator* source = nullptr;
  const Builtin* filter = nullptr;
  Value path;
  Value otherwise;
  return generator(in, [=](Interpreter& i, Value* out) mutable -> Result<bool> {
    if (source == nullptr) {
      if (!is_truthy(value)) return false;
      if (rest.positional.empty()) {
        for (const auto& [key, given] : rest.keyword) {
          if (key == "attribute") path = given;
          if (key == "default") otherwise = given;
        }
        if (path.is_missing()) return filter_argument_error("map requires a filter argument");
        for (const auto& [key, given] : rest.keyword) {
          if (key == "attribute" || key == "default") continue;
          return filter_argument_error("Unexpected keyword argument " + quote(key));
        }
      }
      ASSIGN_OR_RETURN(source, i.iterate(value));
    }
    Value item;
    ASSIGN_OR_RETURN(const bool more, source->next(i, &item));
    if (!more) return false;
    if (rest.positional.empty()) {
      ASSIGN_OR_RETURN(*out, attribute_path(i, item, path, otherwise));
      return true;
    }
    if (filter == nullptr) {
      ASSIGN_OR_RETURN(filter, named_builtin(rest.positional[0], true));
    }
    rest.positional[0] = item;
    ASSIGN_OR_RETURN(*out, call_builtin(i, *filter, {rest.positional, rest.keyword}));
    return true;
  });
}

enum class Keep : std::uint8_t { kPassing, kFailing };
enum class Subject : std::uint8_t { kItem, kAttribute };

template <Keep keep, Subject subject>
Result<Value> select(Interpreter& in, Args args) {
  const Value value = args.raw.positional[0];
  const auto names = args.raw.positional.subspan(1);
  OwnedArgs rest{{names.begin(), names.end()}, {args.raw.keyword.begin(), args.raw.keyword.end()}};
  Iterator* source = nullptr;
  Value path;
  const Builtin* test = nullptr;
  return generator(in, [=](Interpreter& i, Value* out) mutable -> Result<bool> {
    if (source == nullptr) {
      if (!is_truthy(value)) return false;
      if (subject == Subject::kAttribute) {
        if (rest.positional.empty()) {
          return filter_argument_error("Missing parameter for attribute name");
        }
        path = rest.positional[0];
        rest.positional.erase(rest.positional.begin());
      }
      ASSIGN_OR_RETURN(source, i.iterate(value));
    }
    while (true) {
      ASSIGN_OR_RETURN(const bool more, source->next(i, out));
      if (!more) return false;
      RETURN_IF_ERROR(i.check_budget());
      ASSIGN_OR_RETURN(Value tested, attribute_path(i, *out, path, Value()));
      if (!rest.positional.empty()) {
        if (test == nullptr) {
          ASSIGN_OR_RETURN(test, named_builtin(rest.positional[0], false));
        }
        rest.positional[0] = tested;
        ASSIGN_OR_RETURN(tested, call_builtin(i, *test, {rest.positional, rest.keyword}));
      }
      if (is_truthy(tested) == (keep == Keep::kPassing)) return true;
    }
  });
}

constexpr Builtin kFilters[] = {
    {"batch", "value linecount fill_with?", batch},
    {"count", "obj", length},
    {"dictsort", "value case_sensitive? by? reverse?", dict_sort},
    {"first", "seq", first},
    {"groupby", "value attribute default? case_sensitive?", group_by},
    {"items", "value", items},
    {"last", "seq", last},
    {"length", "obj", length},
    {"list", "value", list},
    {"map", "*", map},
    {"max", "value case_sensitive? attribute?", extreme<Order::kGreater>},
    {"min", "value case_sensitive? attribute?", extreme<Order::kLess>},
    {"reject", "*", select<Keep::kFailing, Subject::kItem>},
    {"rejectattr", "*", select<Keep::kFailing, Subject::kAttribute>},
    {"reverse", "value", reverse},
    {"select", "*", select<Keep::kPassing, Subject::kItem>},
    {"selectattr", "*", select<Keep::kPassing, Subject::kAttribute>},
    {"slice", "value slices fill_with?", slice_filter},
    {"sort", "value reverse? case_sensitive? attribute?", sort},
    {"sum", "iterable attribute? start?", sum},
    {"unique", "value case_sensitive? attribute?", unique},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kFilters; }

}  // namespace sluice::jinja
