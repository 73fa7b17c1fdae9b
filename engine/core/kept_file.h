// A long file that is gone on with after a kill. It grows as PATH.part; PATH.part.json says what it
// is made from and how many of its bytes are certain. One process at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "engine/core/file_stream.h"
#include "engine/core/publish.h"

namespace tessera {

class KeptFile {
 public:
  // Takes up the part that is there, cut to its certain bytes, if it says the same `source`; else
  // begins anew. All errors kStorage: AppendFile's, with E_IO_LOCKED where another process writes
  // it.
  KeptFile(std::filesystem::path path, std::string source);
  // Removes the part, unless keep() was called last.
  ~KeptFile();
  KeptFile(KeptFile&&) = delete;
  KeptFile& operator=(KeptFile&&) = delete;

  std::uint64_t size() const { return part_.size(); }
  // What the last mark() said in the run that was cut off; empty where the file begins anew.
  const std::string& note() const { return note_; }
  // The first bytes of the part; whatever the file has of them.
  std::string front(std::size_t bytes) const;
  void restart();  // as if there had been no part
  void append(std::string_view data) { part_.append(data); }
  // All bytes so far are certain from now on; `note` comes back in the run that goes on.
  void mark(std::string_view note);
  void keep() { kept_ = true; }  // for a later run, up to the last mark()
  // Syncs, renames to the path, removes what was next to it.
  void publish();

 private:
  std::filesystem::path path_, state_path_;
  std::string source_, note_;
  AppendFile part_;
  bool kept_ = false;
};

}  // namespace tessera
