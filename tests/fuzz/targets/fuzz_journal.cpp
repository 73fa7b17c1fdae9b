// Journals and the records in them. Oracle: of a journal that was changed anywhere, what is
// believed is a beginning of what was written, and what a mended one holds was written, in its
// order, and is whole; a record that says "done" names plain files with
// whole digests, whatever its JSON; records join the same way in every order, or are a conflict in
// every order.
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/jobs/intents.h"
#include "apps/jobs/records.h"
#include "engine/core/error.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "tests/support/temp_folder.h"

namespace tessera::fuzz {
namespace {

namespace fs = std::filesystem;

const fs::path& scratch() {
  static const TempFolder folder;
  static const fs::path path = folder / "journal";
  return path;
}

ItemRecord done_record(const std::string& name, char digest) {
  ItemRecord record{.state = ItemState::kDone, .seed = 7};
  record.files = {{name, 10, std::string(64, digest)}};
  return record;
}

// Five records as a run writes them.
const std::string& whole_journal() {
  static const std::string text = [] {
    fs::remove(scratch());
    {
      Journal journal(
          scratch(), {{"batch", "x"}}, Start::kAnew, Sync::kOff, [](const Json&) {},
          JournalKind::kBatch);
      for (const char* id : {"a", "b", "c", "d"}) {
        journal.add(record_fields(id, done_record(std::string(id) + ".png", 'a'), 0.5));
      }
      journal.add_failure("e", "", {.code = "E_X", .expected = "this", .found = "that"});
      journal.commit();
    }
    return get_file(scratch());
  }();
  return text;
}

std::vector<std::string> believed(const std::string& journal) {
  put_file(scratch(), journal);
  std::vector<std::string> records;
  read_journal(scratch(), [&](const Json& fields) { records.push_back(fields.dump()); });
  return records;
}

// Opened as a run opens it: cut or mended, and whole from then on.
void check_mended(const std::string& journal, const std::vector<std::string>& truth) {
  const fs::path kept = scratch().string() + ".bad-1";
  fs::remove(kept);
  put_file(scratch(), journal);
  std::vector<std::string> replayed;
  const auto plain = [](Json fields) {
    for (const char* key : {"n", "prev", "crc"}) fields.erase(key);
    return fields.dump();
  };
  try {
    const Journal opened(
        scratch(), {{"batch", "x"}}, Start::kResume, Sync::kOff,
        [&](const Json& fields) { replayed.push_back(plain(fields)); }, JournalKind::kBatch);
    const bool mended = !opened.mended().kept_as.empty();
    require(mended == fs::exists(kept), "what is mended is kept");
    require(!mended || get_file(kept) == journal, "as it was");
    require(!mended || opened.cut_bytes() == 0, "nothing is cut next to that");
  } catch (const Error&) {  // its header is damaged, or another job's
    require(get_file(scratch()) == journal, "what is refused stays");
    return;
  }
  std::size_t at = 0;
  for (const std::string& record : replayed) {
    while (at < truth.size() && plain(Json::parse(truth[at])) != record) ++at;
    require(at++ < truth.size(), "what is believed was written, in that order");
  }
  std::size_t left = 0;
  const JournalRest rest = read_journal(scratch(), [&](const Json& fields) {
    if (!fields.contains("tessera") && !fields.contains("mended")) ++left;
  });
  require(rest.bytes == 0 && left == replayed.size(), "the journal is whole afterwards");
}

// The input as changes: byte pairs (where, what), then whole lines dropped, doubled or swapped.
void check_changed_journal(std::string_view input) {
  static const std::vector<std::string> truth = believed(whole_journal());
  require(truth.size() == 6, "a whole journal is believed");
  static constexpr std::size_t kEnough = 16384;  // bytes: lines that are doubled again and again
  std::string journal = whole_journal();
  for (std::size_t i = 0; i + 3 <= input.size(); i += 3) {
    if (journal.empty() || journal.size() > kEnough) break;
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(input[i + at]); };
    const std::size_t at = (byte(0) * 256u + byte(1)) % journal.size();
    const std::size_t line = journal.find('\n', at);
    if (byte(2) == 0) {
      journal.resize(at);
    } else if (byte(2) == 1 && line != std::string::npos) {
      const std::size_t next = std::min(journal.find('\n', line + 1), journal.size() - 1);
      journal.erase(line + 1, next - line);
    } else if (byte(2) == 2 && line != std::string::npos) {
      const std::size_t next = std::min(journal.find('\n', line + 1), journal.size() - 1);
      journal.insert(line + 1, journal.substr(line + 1, next - line));
    } else {
      journal[at] = input[i + 2];
    }
  }
  const std::vector<std::string> records = believed(journal);
  require(records.size() <= truth.size(), "nothing is believed that was not written");
  for (std::size_t i = 0; i < records.size(); ++i) {
    require(records[i] == truth[i], "what is believed is a beginning of what was written");
  }
  check_mended(journal, truth);
}

// Any JSON as a record.
std::optional<ItemRecord> check_record(const Json& fields, std::string& id) {
  ItemRecord record;
  try {
    id = record_of(fields, record);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  if (id.empty()) return std::nullopt;
  if (record.state == ItemState::kDone) {
    require(!record.files.empty(), "done items have files");
    for (const RecordedFile& file : record.files) {
      require(!file.name.empty() && file.name[0] != '.' &&
                  file.name.find('/') == std::string::npos &&
                  file.name.find('\0') == std::string::npos,
              "files lie in the folder");
      require(file.sha256.size() == 64, "digests are whole");
    }
  }
  return record;
}

std::optional<ItemRecords> joined(const ItemRecords& a, const ItemRecords& b) {
  try {
    return merge_records(a, b);
  } catch (const Error& error) {
    require(error.info().code == "E_MERGE_CONFLICT", "conflicts are notified as such");
    return std::nullopt;
  }
}

void check_merge(const std::vector<ItemRecords>& sets) {
  for (const ItemRecords& a : sets) {
    const auto same = joined(a, a);
    require(same && *same == a, "a set joins with itself to itself");
    for (const ItemRecords& b : sets) {
      const auto left = joined(a, b), right = joined(b, a);
      require(left == right, "order changes nothing");
      for (const ItemRecords& c : sets) {
        const auto bc = joined(b, c);
        const auto one = left ? joined(*left, c) : std::nullopt;
        const auto two = bc ? joined(a, *bc) : std::nullopt;
        require(one == two, "grouping changes nothing");
      }
    }
  }
}

// Any JSON as an intent: names that it speaks of lie in the folder.
void check_intent(const Json& fields) {
  Intents intents;
  try {
    intents.take(fields);
    if (!fields.contains("intent")) return;
    for (const IntendedFile& file : intents.last(fields.at("intent").get<std::string>())) {
      require(is_plain_name(file.name), "files lie in the folder");
    }
  } catch (const nlohmann::json::exception&) {
  }
}

// Three sets of records, two bits a record.
void check_sets(std::string_view input) {
  std::vector<ItemRecords> sets(3);
  for (std::size_t i = 0; i < std::min<std::size_t>(input.size(), 9); ++i) {
    const auto byte = static_cast<unsigned char>(input[i]);
    const std::string id(1, static_cast<char>('a' + byte % 3));
    ItemRecord record = done_record(id + ".png", byte & 64 ? 'b' : 'a');
    if ((byte >> 3) % 3 == 1) {
      record = {};
      record.state = ItemState::kFailed;
      record.error = byte & 128 ? "x" : "y";
    } else if ((byte >> 3) % 3 == 2) {
      record = {};
    }
    sets[i % 3].emplace(id, record);
  }
  check_merge(sets);
}

std::vector<std::string> seeds() {
  std::string done = record_fields("a", done_record("a.png", 'c'), 1).dump();
  return {std::string("E\0\x10\0", 4),
          std::string("E\1\x20\1\0\x30\x41", 7),
          "J" + done,
          "J" + intent_fields("a", std::vector<IntendedFile>{{"a.png", "n", "o"}}).dump(),
          std::string("E\1\x20\x55\2\x30\2", 7),
          "J{\"id\":\"x\",\"st\":\"failed\",\"error\":{\"code\":\"E\"}}",
          "M\1\2\3\4\5\6\7\x48\x50"};
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  tessera::fuzz::write_seeds_if_asked(tessera::fuzz::seeds());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'J') {
    const Json fields = Json::parse(rest.begin(), rest.end(), nullptr, false);
    std::string id;
    if (fields.is_object()) fuzz::check_record(fields, id);
    if (fields.is_object()) fuzz::check_intent(fields);
  } else if (data[0] == 'M') {
    fuzz::check_sets(rest);
  } else {
    fuzz::check_changed_journal(rest);
  }
  return 0;
}

// Names and states of records, next to libFuzzer's own changes.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace tessera::fuzz;
  static const char* const kNames[] = {"../a.png", ".a", "/a", "a/b", "", "a", "\\u0000"};
  Choice choice(seed);
  std::string text(as_text(data, size));
  const std::size_t name = text.find("\"p\":\"");
  if (!text.empty() && text[0] == 'J' && name != std::string::npos && choice.one_in(2)) {
    const std::size_t end = text.find('"', name + 5);
    if (end != std::string::npos) {
      text.replace(name + 5, end - name - 5, kNames[choice.below(std::size(kNames))]);
      return release(text, data, max_size);
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
