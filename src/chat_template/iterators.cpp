#include "chat_template/iterators.h"

#include "chat_template/interpreter.h"
#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

Result<bool> ItemsIterator::next(Interpreter& interpreter, Value* out) {
  if (next_ >= items_.size()) return false;
  interpreter.heap().step();
  *out = items_[next_++];
  return true;
}

Result<bool> TextIterator::next(Interpreter& interpreter, Value* out) {
  if (next_ >= text_.size()) return false;
  interpreter.heap().step();
  const std::size_t begin = next_;
  next_code_point(text_, &next_);
  *out = Value::string(text_.substr(begin, next_ - begin));
  return true;
}

Result<bool> RangeIterator::next(Interpreter& interpreter, Value* out) {
  if (next_ >= range_.size()) return false;
  interpreter.heap().step();
  *out = Value::integer(range_.at(next_++));
  return true;
}

Result<bool> DictIterator::next(Interpreter& interpreter, Value* out) {
  if (next_ >= dict_.entries.size()) return false;
  interpreter.heap().step();
  const DictEntry& entry = dict_.entries[next_++];
  switch (part_) {
    case DictView::Part::kKeys: *out = entry.key; break;
    case DictView::Part::kValues: *out = entry.value; break;
    case DictView::Part::kItems: {
      const Value pair[] = {entry.key, entry.value};
      *out = interpreter.heap().make_tuple(pair);
    }
  }
  return true;
}

Result<bool> Generator::next(Interpreter& interpreter, Value* out) {
  const Interpreter::Depth depth(interpreter);
  interpreter.heap().step();
  RETURN_IF_ERROR(interpreter.check_budget());
  return next_(interpreter, out);
}

Result<Iterator*> Interpreter::iterate(Value value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return heap_.make_object<ItemsIterator>(std::span<const Value>(), "generator");
    case Kind::kString: return heap_.make_object<TextIterator>(value.text());
    case Kind::kList: return heap_.make_object<ItemsIterator>(value.items(), "list_iterator");
    case Kind::kTuple: return heap_.make_object<ItemsIterator>(value.items(), "tuple_iterator");
    case Kind::kDict:
      return heap_.make_object<DictIterator>(value.as_dict(), DictView::Part::kKeys,
                                             "dict_keyiterator");
    case Kind::kObject: break;
    default: return type_error("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  Object* object = value.as_object();
  switch (object->type()) {
    case ObjectType::kRange:
      return heap_.make_object<RangeIterator>(static_cast<const Range&>(*object));
    case ObjectType::kDictView: {
      const auto& view = static_cast<const DictView&>(*object);
      return heap_.make_object<DictIterator>(*view.dict, view.part, "dict_iterator");
    }
    case ObjectType::kIterator: return static_cast<Iterator*>(object);
    default: return type_error("'" + std::string(type_name(value)) + "' object is not iterable");
  }
}

Result<std::span<const Value>> Interpreter::collect(Value value, std::vector<Value>* storage) {
  if (value.is_sequence()) return value.items();
  ASSIGN_OR_RETURN(Iterator * source, iterate(value));
  Value item;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, source->next(*this, &item));
    if (!more) break;
    heap_.charge(sizeof(Value));
    RETURN_IF_ERROR(check_budget());
    storage->push_back(item);
  }
  return std::span<const Value>(*storage);
}

Result<bool> Interpreter::contains(Value container, Value item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return type_error("'in <string>' requires string as left operand, not " +
                        std::string(type_name(item)));
    }
    heap_.scan(container.text().size());
    return container.text().find(item.text()) != std::string_view::npos;
  }
  const bool keys =
      container.is_dict() ||
      (container.is(Kind::kObject) && container.as_object()->type() == ObjectType::kDictView &&
       static_cast<const DictView&>(*container.as_object()).part == DictView::Part::kKeys);
  if (keys) {
    if (!is_hashable(item)) {
      return type_error("unhashable type: '" + std::string(type_name(item)) + "'");
    }
    const Dict& dict = container.is_dict()
                           ? container.as_dict()
                           : *static_cast<const DictView&>(*container.as_object()).dict;
    return find(dict, item) != nullptr;
  }
  Result<Iterator*> source = iterate(container);
  if (!source) {
    return type_error("argument of type '" + std::string(type_name(container)) +
                      "' is not iterable");
  }
  Value candidate;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, (*source)->next(*this, &candidate));
    if (!more) return false;
    RETURN_IF_ERROR(check_budget());
    if (equals(heap_, candidate, item)) return true;
  }
}

}  // namespace sluice::jinja
