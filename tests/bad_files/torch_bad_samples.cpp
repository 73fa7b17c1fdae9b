// Damaged torch.save archives: first the zip around, then the pickle inside, then what joins them.
#include <functional>

#include "tests/bad_files/bad_sample.h"
#include "tests/support/torch_builder.h"

namespace tessera {

namespace {

BadSample raw(std::string name, std::string code, std::vector<std::string> words,
            std::string contents) {
  return {.name = std::move(name),
          .code = std::move(code),
          .words = std::move(words),
          .files = {{"m.pt", std::move(contents)}}};
}

// The good archive after one change.
BadSample zip(const std::string& name, std::string code, std::vector<std::string> words,
            const std::function<void(ZipPlan&)>& change) {
  ZipPlan plan = torch_plan(simple_pickle());
  change(plan);
  return raw("zip_" + name, std::move(code), std::move(words), build_zip(plan));
}

BadSample pickle(const std::string& name, std::string code, std::vector<std::string> words,
               const PickleText& text) {
  words.push_back("data.pkl");
  return raw("pkl_" + name, std::move(code), std::move(words), torch_archive(text.stop()));
}

// {"a": a tensor} with these numbers over a storage entry of 24 bytes.
BadSample tensor(const std::string& name, std::string code, std::vector<std::string> words,
               std::int64_t storage, std::int64_t offset, std::vector<std::int64_t> size,
               std::vector<std::int64_t> stride, const char* type = "FloatStorage",
               const char* key = "0") {
  return raw("pt_" + name, std::move(code), std::move(words),
             torch_archive(PickleText()
                               .op('}')
                               .text("a")
                               .tensor(type, key, storage, offset, size, stride)
                               .op('s')
                               .stop()));
}

PickleText good_tensor(PickleText text) {
  const std::int64_t size[] = {2, 3}, stride[] = {3, 1};
  return text.tensor("FloatStorage", "0", 6, 0, size, stride);
}

void add_zip(std::vector<BadSample>& out) {
  const std::string whole = torch_archive(simple_pickle());
  out.push_back(raw("zip_empty_file", "E_PT_MAGIC", {"byte 0"}, ""));
  out.push_back(raw("zip_not_a_zip", "E_PT_MAGIC", {"zip archive"}, "hello hello hello hello"));
  out.push_back(
      raw("zip_cut_by_one", "E_ZIP_END", {"end record", "cut"}, whole.substr(0, whole.size() - 1)));
  out.push_back(
      raw("zip_cut_in_half", "E_ZIP_END", {"end record"}, whole.substr(0, whole.size() / 2)));
  out.push_back(raw("zip_magic_alone", "E_ZIP_END", {"22 bytes"}, whole.substr(0, 4)));
  out.push_back(
      zip("text_after_the_end", "E_ZIP_END", {"added"}, [](ZipPlan& plan) { plan.tail = "x"; }));
  out.push_back(
      zip("comment", "E_ZIP_END", {"end record"}, [](ZipPlan& plan) { plan.comment = "hello"; }));
  out.push_back(
      zip("several_disks", "E_ZIP_END", {"one part"}, [](ZipPlan& plan) { plan.disk = 1; }));
  out.push_back(zip("count_one_more", "E_ZIP_DIRECTORY", {"an entry"},
                    [](ZipPlan& plan) { plan.count = 5; }));
  out.push_back(zip("count_one_less", "E_ZIP_DIRECTORY", {"3 entries"},
                    [](ZipPlan& plan) { plan.count = 3; }));
  out.push_back(zip("count_huge", "E_ZIP64", {"agree"},
                    [](ZipPlan& plan) { plan.count = std::uint64_t{1} << 40; }));
  out.push_back(zip("count_over_limit", "E_ZIP_COUNT", {"100000"}, [](ZipPlan& plan) {
    plan.count = 0x3ffff;  // 0xffff in the narrow record: "see the wide one"
  }));
  out.push_back(zip("directory_shifted", "E_ZIP_DIRECTORY", {"central directory"},
                    [](ZipPlan& plan) { plan.directory_shift = 1; }));
  out.push_back(zip("directory_past_the_end", "E_ZIP_DIRECTORY", {"central directory"},
                    [](ZipPlan& plan) { plan.directory_shift = 1 << 30; }));
  out.push_back(zip("directory_size", "E_ZIP_DIRECTORY", {"end record"},
                    [](ZipPlan& plan) { plan.directory_growth = 1; }));
  out.push_back(zip("locator_elsewhere", "E_ZIP64", {"right before"},
                    [](ZipPlan& plan) { plan.locator_shift = 4; }));
  out.push_back(zip("encrypted", "E_ZIP_FLAGS", {"flags 2057", "x/data/0"},
                    [](ZipPlan& plan) { plan.items[2].flags |= 1; }));
  out.push_back(zip("deflated", "E_ZIP_COMPRESSED", {"x/data/0", "stored"},
                    [](ZipPlan& plan) { plan.items[2].method = plan.items[2].local_method = 8; }));
  out.push_back(zip("bomb_of_sizes", "E_ZIP_DIRECTORY", {"24 and 4294967294"},
                    [](ZipPlan& plan) { plan.items[2].unpacked = 0xfffffffe; }));
  out.push_back(zip("name_climbs", "E_ZIP_NAME", {"x/../data"},
                    [](ZipPlan& plan) { plan.items[2].name = "x/../data"; }));
  out.push_back(zip("name_absolute", "E_ZIP_NAME", {"relative"},
                    [](ZipPlan& plan) { plan.items[2].name = "/etc/passwd"; }));
  out.push_back(zip("name_backslash", "E_ZIP_NAME", {"relative"},
                    [](ZipPlan& plan) { plan.items[2].name = "x\\data"; }));
  out.push_back(zip("name_with_nul", "E_ZIP_NAME", {"control"},
                    [](ZipPlan& plan) { plan.items[2].name = std::string("x/data/0\0", 9); }));
  out.push_back(zip("name_twice", "E_ZIP_DUPLICATE", {"x/version", "once"},
                    [](ZipPlan& plan) { plan.items.push_back(plan.items[3]); }));
  out.push_back(zip("two_names", "E_ZIP_LOCAL", {"x/data/0"},
                    [](ZipPlan& plan) { plan.items[2].local_name = "x/data/1"; }));
  out.push_back(zip("two_methods", "E_ZIP_LOCAL", {"local header"},
                    [](ZipPlan& plan) { plan.items[2].local_method = 8; }));
  out.push_back(zip("two_crcs", "E_ZIP_LOCAL", {"descriptor"},
                    [](ZipPlan& plan) { plan.items[2].descriptor_crc ^= 1; }));
  out.push_back(zip("local_header_missing", "E_ZIP_LOCAL", {"x/data/0"},
                    [](ZipPlan& plan) { plan.items[2].local_offset = 1; }));
  out.push_back(zip("local_header_past_the_end", "E_ZIP_RANGE", {"before the central directory"},
                    [](ZipPlan& plan) { plan.items[2].local_offset = 0x7fffffff; }));
  out.push_back(
      zip("contents_past_the_end", "E_ZIP_RANGE", {"x/data/0", "2147483647"},
          [](ZipPlan& plan) { plan.items[2].packed = plan.items[2].unpacked = 0x7fffffff; }));
  out.push_back(zip("contents_2_64", "E_ZIP_RANGE", {"18446744073709551615"}, [](ZipPlan& plan) {
    plan.items[2].wide = true;
    plan.items[2].packed = plan.items[2].unpacked = UINT64_MAX;
  }));
  out.push_back(zip("offset_2_64", "E_ZIP_RANGE", {"18446744073709551614"}, [](ZipPlan& plan) {
    plan.items[2].wide = true;
    plan.items[2].local_offset = UINT64_MAX - 1;
  }));
  out.push_back(zip("entry_inside_another", "E_ZIP_OVERLAP", {"x/data/9"}, [](ZipPlan& plan) {
    // A whole archive member hidden in the contents of another, listed as an entry of its own.
    const ZipItem inner{"x/data/9", "hidden"};
    const std::string member = build_zip({.items = {inner}, .end64 = false});
    plan.items[2].contents = member;
    plan.items[2].crc = plan.items[2].descriptor_crc = crc32(std::as_bytes(std::span(member)));
    plan.items[2].packed = plan.items[2].unpacked = member.size();
    const std::size_t at = build_zip(plan).find(member);
    plan.items.push_back(inner);
    plan.items[4].local_offset = at;
  }));
}

void add_opcodes(std::vector<BadSample>& out) {
  const auto text = [] { return PickleText(); };
  out.push_back(pickle("os_system", "E_PT_GLOBAL", {"os.system", "safetensors", "byte 2"},
                       text().name("os", "system").text("id").op(0x85).op('R')));
  out.push_back(pickle("eval_by_stack", "E_PT_GLOBAL", {"builtins.eval"},
                       text().text("builtins").text("eval").op(0x93)));
  out.push_back(pickle("nearly_allowed", "E_PT_GLOBAL", {"torch._utils._rebuild_tensor_v2x"},
                       text().name("torch._utils", "_rebuild_tensor_v2x")));
  out.push_back(
      pickle("name_with_escape_code", "E_PT_GLOBAL", {"\\u{001b}"}, text().name("\x1b[31m", "x")));
  out.push_back(
      pickle("getattr", "E_PT_GLOBAL", {"builtins.getattr"}, text().name("builtins", "getattr")));
  for (const auto& [name, code] :
       std::initializer_list<std::pair<const char*, unsigned char>>{{"ext1", 0x82},
                                                                    {"inst", 'i'},
                                                                    {"obj", 'o'},
                                                                    {"persid_text", 'P'},
                                                                    {"long4", 0x8b},
                                                                    {"int_text", 'I'},
                                                                    {"newobj_ex", 0x92},
                                                                    {"bytearray8", 0x96},
                                                                    {"no_opcode", 0xff}}) {
    out.push_back(pickle(std::string("opcode_") + name, "E_PT_OPCODE",
                         {"opcode " + std::to_string(code), "byte 2"}, text().op(code)));
  }
  out.push_back(pickle("protocol_0", "E_PT_PROTOCOL", {"2..5", "found 0"}, text().op(0x80).op(0)));
  out.push_back(pickle("protocol_6", "E_PT_PROTOCOL", {"found 6"}, text().op(0x80).op(6)));
  out.push_back(pickle("frame_past_the_end", "E_PT_TRUNCATED", {"frame"},
                       text().op(0x95).raw(std::string(8, '\x7f'))));
  out.push_back(pickle("string_past_the_end", "E_PT_TRUNCATED", {"4294967295 more bytes"},
                       text().op('X').raw("\xff\xff\xff\xff")));
  out.push_back(pickle("string_2_64", "E_PT_TRUNCATED", {"18446744073709551615"},
                       text().op(0x8d).raw(std::string(8, '\xff'))));
  out.push_back(pickle("line_without_end", "E_PT_TRUNCATED", {"line"}, text().raw("ctorch")));
  out.push_back(raw("pkl_cut", "E_PT_TRUNCATED", {"1 more bytes", "found 0"},
                    torch_archive(std::string("\x80\x02}", 3))));
  out.push_back(raw("pkl_text_after_stop", "E_PT_TRAILING", {"end of data.pkl"},
                    torch_archive(simple_pickle() + "x")));
}

void add_machine(std::vector<BadSample>& out) {
  const auto text = [] { return PickleText(); };
  out.push_back(raw("pkl_empty_stack", "E_PT_STACK", {"a value"}, torch_archive(".")));
  out.push_back(pickle("two_values_left", "E_PT_STACK", {"one value"}, text().op('}').op('}')));
  out.push_back(pickle("mark_left", "E_PT_STACK", {"value"}, text().op('}').op('(')));
  out.push_back(pickle("tuple_without_mark", "E_PT_STACK", {"a mark"}, text().op('}').op('t')));
  out.push_back(
      pickle("pop_below_mark", "E_PT_STACK", {"a value"}, text().op('}').op('(').op('0')));
  out.push_back(pickle("key_without_value", "E_PT_STACK", {"a key alone"},
                       text().op('}').op('(').text("a").op('u')));
  out.push_back(pickle("memo_unset", "E_PT_MEMO", {"found 5"}, text().op('h').op(5)));
  out.push_back(
      pickle("memo_hole", "E_PT_MEMO", {"found 1"}, text().op('}').op('q').op(3).op('h').op(1)));
  out.push_back(pickle("memo_slot_huge", "E_PT_MEMO", {"4294967295"},
                       text().op('}').op('r').raw("\xff\xff\xff\xff")));
  out.push_back(
      pickle("stack_too_deep", "E_PT_STACK", {"100000"}, text().raw(std::string(100'001, 'N'))));
  out.push_back(
      pickle("too_many_marks", "E_PT_STACK", {"marks"}, text().raw(std::string(100'001, '('))));
  std::string endless;
  for (int i = 0; i < 5'000'100; ++i) endless += "N0";
  out.push_back(pickle("too_many_steps", "E_PT_STEPS", {"10000000"}, text().raw(endless)));
  std::string lists;
  for (int i = 0; i < 500'001; ++i) lists += "]0";
  out.push_back(pickle("too_many_lists", "E_PT_MEMORY", {"500000 containers"}, text().raw(lists)));
  // One list that takes in itself, over and over.
  std::string growing = "]q";
  growing += '\0';
  for (int i = 0; i < 1'500'001; ++i) growing += "Na";
  out.push_back(pickle("list_too_long", "E_PT_MEMORY", {"1500000 values"}, text().raw(growing)));
  out.push_back(pickle("append_to_a_string", "E_PT_TYPE", {"a list", "a string"},
                       text().text("x").op('N').op('a')));
  out.push_back(pickle("call_of_a_string", "E_PT_TYPE", {"a rebuilder", "a string"},
                       text().text("x").op(')').op('R')));
  out.push_back(pickle("call_without_a_tuple", "E_PT_TYPE", {"arguments"},
                       text().name("collections", "OrderedDict").op('N').op('R')));
  out.push_back(pickle("call_of_a_storage_class", "E_PT_CALL", {"torch.FloatStorage"},
                       text().name("torch", "FloatStorage").op(')').op('R')));
  out.push_back(pickle("rebuilder_of_rebuilders", "E_PT_CALL", {"calls another"},
                       text()
                           .name("torch._tensor", "_rebuild_from_type_v2")
                           .op('(')
                           .name("torch._tensor", "_rebuild_from_type_v2")
                           .op('N')
                           .op(')')
                           .op('t')
                           .op('R')));
  out.push_back(pickle("attributes_of_a_number", "E_PT_TYPE", {"attributes"},
                       text().integer(1).op('}').op('b')));
  out.push_back(pickle("persistent_id_not_a_tuple", "E_PT_TYPE", {"storage", "a string"},
                       text().text("x").op('Q')));
  out.push_back(pickle(
      "persistent_id_too_short", "E_PT_CALL", {"arguments"},
      text().op('(').text("storage").name("torch", "FloatStorage").text("0").op('t').op('Q')));
  out.push_back(pickle("persistent_id_other_word", "E_PT_STORAGE_ID", {"\"storage\""},
                       text()
                           .op('(')
                           .text("module")
                           .name("torch", "FloatStorage")
                           .text("0")
                           .text("cpu")
                           .integer(6)
                           .op('t')
                           .op('Q')));
  out.push_back(pickle("storage_size_negative", "E_PT_STORAGE_ID", {"size -1"},
                       text().storage("FloatStorage", "0", -1)));
  out.push_back(pickle("storage_of_strings", "E_PT_GLOBAL", {"torch.StringStorage"},
                       text().storage("StringStorage", "0", 6)));
  out.push_back(
      pickle("root_is_a_tensor", "E_PT_NO_TENSORS", {"a dict", "a tensor"}, good_tensor(text())));
  out.push_back(pickle("root_is_empty", "E_PT_NO_TENSORS", {"state_dict"}, text().op('}')));
  out.push_back(pickle("name_is_a_number", "E_PT_NAME", {"an integer"},
                       good_tensor(text().op('}').integer(7)).op('s')));
  out.push_back(
      pickle("name_twice", "E_PT_DUPLICATE", {"\"a\""},
             good_tensor(good_tensor(text().op('}').text("a")).op('s').text("a")).op('s')));
}

void add_tensors(std::vector<BadSample>& out) {
  out.push_back(tensor("offset_past_the_storage", "E_PT_STRIDE", {"storage of 6", "element 1"}, 6,
                       1, {2, 3}, {3, 1}));
  out.push_back(tensor("stride_past_the_storage", "E_PT_STRIDE", {"to 7"}, 6, 0, {2, 3}, {4, 1}));
  out.push_back(
      tensor("offset_2_63", "E_PT_STRIDE", {"9223372036854775807"}, 6, INT64_MAX, {2}, {1}));
  out.push_back(tensor("offset_negative", "E_PT_SHAPE", {"offset -1"}, 6, -1, {2}, {1}));
  out.push_back(tensor("stride_negative", "E_PT_SHAPE", {"and -3"}, 6, 3, {2, 3}, {-3, 1}));
  out.push_back(
      tensor("stride_wraps", "E_PT_STRIDE", {"storage of 6"}, 6, 0, {3, 3}, {INT64_MAX, 1}));
  out.push_back(tensor("stride_zero", "E_PT_STRIDE", {"contiguous"}, 6, 0, {1'000'000, 6}, {0, 1}));
  out.push_back(tensor("size_negative", "E_PT_SHAPE", {"-2"}, 6, 0, {-2, 3}, {3, 1}));
  out.push_back(tensor("size_wraps", "E_PT_SHAPE", {"2^61"}, 6, 0,
                       {std::int64_t{1} << 32, std::int64_t{1} << 32}, {0, 0}));
  out.push_back(tensor("size_wraps_to_zero", "E_PT_SHAPE", {"2^61"}, 6, 0,
                       {std::int64_t{1} << 62, 4, 4}, {16, 4, 1}));
  out.push_back(tensor("rank_nine", "E_PT_SHAPE", {"9 sizes"}, 6, 0,
                       std::vector<std::int64_t>(9, 1), std::vector<std::int64_t>(9, 1)));
  out.push_back(tensor("fewer_strides", "E_PT_SHAPE", {"1 strides"}, 6, 0, {2, 3}, {1}));
  out.push_back(tensor("storage_missing", "E_PT_STORAGE", {"x/data/7", "no such entry"}, 6, 0, {2},
                       {1}, "FloatStorage", "7"));
  out.push_back(
      tensor("storage_one_short", "E_PT_STORAGE", {"7 elements", "24 bytes"}, 7, 0, {7}, {1}));
  out.push_back(
      tensor("storage_2_62", "E_PT_STORAGE", {"24 bytes"}, std::int64_t{1} << 62, 0, {2}, {1}));
  out.push_back(
      tensor("storage_of_another_type", "E_PT_STORAGE", {"f64"}, 6, 0, {6}, {1}, "DoubleStorage"));
  out.push_back(tensor("complex", "E_PT_DTYPE", {"ComplexFloatStorage"}, 6, 0, {6}, {1},
                       "ComplexFloatStorage"));
  out.push_back(zip("pickle_crc", "E_PT_CRC", {"CRC-32"}, [](ZipPlan& plan) {
    plan.items[0].crc ^= 1;
    plan.items[0].descriptor_crc ^= 1;
  }));
  out.push_back(zip("big_endian", "E_PT_BYTE_ORDER", {"little"}, [](ZipPlan& plan) {
    plan.items[1] = {"x/byteorder", "big"};
  }));
  out.push_back(zip("no_pickle", "E_PT_NO_PICKLE", {"NAME/data.pkl"},
                    [](ZipPlan& plan) { plan.items.erase(plan.items.begin()); }));
  out.push_back(zip("two_pickles", "E_PT_NO_PICKLE", {"two"}, [](ZipPlan& plan) {
    plan.items.push_back({"y/data.pkl", simple_pickle()});
  }));
  out.push_back(zip("torchscript", "E_PT_TORCHSCRIPT", {"TorchScript"}, [](ZipPlan& plan) {
    plan.items.push_back({"x/constants.pkl", "\x80\x02)."});
  }));
  std::string old = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  out.push_back(raw("pt_before_zip", "E_PT_OLD_FORMAT", {"PyTorch 1.6", "weights_only"}, old));
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  out.push_back(raw("pt_tar", "E_PT_OLD_FORMAT", {"PyTorch 1.6"}, tar));
  // Many transposed views of one storage, each of which would be copied.
  PickleText views;
  views.op('}');
  const std::int64_t size[] = {32, 32}, stride[] = {1, 32};
  for (int i = 0; i < 300; ++i) {
    views.text("t" + std::to_string(i)).tensor("FloatStorage", "0", 1024, 0, size, stride).op('s');
  }
  out.push_back(raw("pt_views_that_multiply", "E_CKPT_COPIES", {"contiguous", "in all"},
                    torch_archive(views.stop(), 4096)));
}

}  // namespace

std::vector<BadSample> torch_bad_samples() {
  std::vector<BadSample> out;
  add_zip(out);
  add_opcodes(out);
  add_machine(out);
  add_tensors(out);
  return out;
}

}  // namespace tessera
