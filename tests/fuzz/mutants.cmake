# Mutants: defects that fuzzing must find. Each is one change of one source file, made in a copy that
# only the fuzz target of that mutant is built from; the file itself knows nothing of it.
#   mutant(name target library file before after)
# `before` must occur in the file exactly once. `library` of targets/CMakeLists.txt is what the
# target links next to the copy.
mutant(st_end_off_by_one fuzz_safetensors parsers engine/checkpoint/safetensors.cpp
  [==[if (tensor.end > data_size) {]==]
  [==[if (tensor.end > data_size + 1) {]==])
mutant(st_gap_unchecked fuzz_safetensors parsers engine/checkpoint/safetensors.cpp
  [==[if (tensor.begin != covered) {]==]
  [==[if (false) {]==])
mutant(idx_shard_off_by_one fuzz_safetensors parsers engine/checkpoint/shard_index.cpp
  [==[numbers_.emplace(std::move(name), number);]==]
  [==[numbers_.emplace(std::move(name), number + 1);]==])
mutant(gguf_end_off_by_one fuzz_gguf parsers engine/checkpoint/gguf.cpp
  [==[if (!end || *end > bytes_.size()) {]==]
  [==[if (!end || *end > bytes_.size() + 1) {]==])
mutant(gguf_overlap_unchecked fuzz_gguf parsers engine/checkpoint/gguf.cpp
  [==[if (sorted[i]->begin >= sorted[i - 1]->end) continue;]==]
  [==[if (sorted[i]->begin < bytes_.size()) continue;]==])
mutant(zip_end_off_by_one fuzz_torch parsers engine/checkpoint/zip.cpp
  [==[if (entry.begin > directory_begin_ || entry.size > directory_begin_ - entry.begin) {]==]
  [==[if (entry.begin > directory_begin_ + 1 || entry.size > directory_begin_ + 1 - entry.begin) {]==])
mutant(pickle_read_off_by_one fuzz_torch parsers engine/checkpoint/pickle_machine.cpp
  [==[const std::uint64_t left = pickle_.size() - at_;]==]
  [==[const std::uint64_t left = pickle_.size() - at_ + 1;]==])
mutant(pt_reach_off_by_one fuzz_torch parsers engine/checkpoint/pickle_objects.cpp
  [==[if (!reach || *reach > size) {]==]
  [==[if (!reach || *reach > size + 1) {]==])
mutant(json_range_off_by_one fuzz_config families engine/core/json.cpp
  [==[if (number < low || number > high) return std::nullopt;]==]
  [==[if (number < low || (number > high && number - 1 != high)) return std::nullopt;]==])
mutant(folder_null_unsaid fuzz_folder families engine/families/folder_files.cpp
  [==[note(key, value, row);]==]
  [==[if (!value.is_null()) note(key, value, row);]==])
mutant(tok_template_off_by_one fuzz_tokenizer text tokenizers/text/tokenizer_json.cpp
  [==[if (value >= vocab_size) {]==]
  [==[if (value >= vocab_size + 1) {]==])
mutant(proto_shift_past_64 fuzz_vocabulary text tokenizers/text/protobuf.cpp
  [==[shift < 64]==]
  [==[shift < 80]==])
mutant(gif_end_off_by_one fuzz_picture pictures vision/codec/gif_reader.cpp
  [==[std::min(table.length(code), out.size() - at)]==]
  [==[std::min(table.length(code), out.size() - at + 1)]==])
mutant(bmp_run_off_by_one fuzz_picture pictures vision/codec/bmp_reader.cpp
  [==[if (x_ >= header_.width || y_ >= header_.height) refuse_place();]==]
  [==[if (x_ >= header_.width + 1 || y_ >= header_.height) refuse_place();]==])
mutant(exif_off_by_one fuzz_picture pictures vision/codec/exif.cpp
  [==[data_.size() - at < bytes]==]
  [==[data_.size() + 1 - at < bytes]==])
mutant(map_newline_off_by_one fuzz_preprocess families vision/image/preprocess_plan.cpp
  [==[plan.newlines = plan.packed_rows;
    plan.tokens = plan.view_rows * plan.view_cols + plan.packed_rows * (plan.packed_cols + 1);]==]
  [==[plan.newlines = plan.packed_rows;
    plan.tokens = plan.view_rows * plan.view_cols + plan.packed_rows * (plan.packed_cols + 1);
    if (plan.map_top > 0) plan.tokens -= 1;]==])
mutant(tile_off_by_one fuzz_preprocess families vision/image/preprocess.cpp
  [==[image.at(left, top + y)]==]
  [==[image.at(left, top + y + 1)]==])
mutant(tar_rest_off_by_one fuzz_tar shards apps/captions/tar_reader.cpp
  [==[if (size > rest) {]==]
  [==[if (size > rest + 1) {]==])
mutant(tar_dotdot_off_by_one fuzz_tar shards apps/captions/tar_reader.cpp
  [==[if (part == "..") return {};]==]
  [==[if (part == ".." && end != name.size()) return {};]==])
mutant(item_id_dot fuzz_job jobs apps/captions/line_reader.cpp
  [==[id.size() <= 120 && id.front() != '.' &&]==]
  [==[id.size() <= 120 &&]==])
mutant(csv_doubled_quote fuzz_job jobs apps/jobs/job_csv.cpp
  [==[cell.text += '"';]==]
  [==[cell.text += "\"\"";]==])
mutant(job_range fuzz_job jobs apps/jobs/job_fields.cpp
  [==[const std::optional<SettingValue> value = parse_setting(*field.setting, text);]==]
  [==[Setting wider = *field.setting;
  wider.low -= 1;
  const std::optional<SettingValue> value = parse_setting(wider, text);]==])
mutant(record_name_unchecked fuzz_journal records apps/jobs/records.cpp
  [==[if (!is_plain_name(known.name)) return {};]==]
  [==[]==])
mutant(merge_by_order fuzz_journal records apps/jobs/records.cpp
  [==[return a.error <= b.error ? a : b;]==]
  [==[return a;]==])
mutant(mend_twice fuzz_journal records apps/jobs/journal.cpp
  [==[const bool before = opened && opened->number() < next;]==]
  [==[const bool before = false;]==])
mutant(meta_quote_escaped fuzz_metadata facts apps/runtime/metadata.cpp
  [==[if (text[i] == '\\') {]==]
  [==[if (false) {]==])
mutant(xmp_quote_kept fuzz_metadata facts vision/image/xmp.cpp
  [==[} else if (piece == "\"") {]==]
  [==[} else if (false) {]==])
mutant(escape_c1_end fuzz_escape jobs engine/core/error.cpp
  [==[(c >= 0x7f && c < 0xa0)]==]
  [==[(c >= 0x7f && c < 0x9f)]==])
mutant(line_isolate_kept fuzz_escape jobs apps/captions/text_forms.cpp
  [==[(c >= 0x2060 && c <= 0x2069)]==]
  [==[(c >= 0x2060 && c <= 0x2068)]==])
mutant(clip_time_repeats fuzz_clip clips video/codec/video_decoder.cpp
  [==[|| since <= last;]==]
  [==[|| since < last;]==])
mutant(http_coding_unchecked fuzz_request requests apps/serve/http/request_reader.cpp
  [==[if (!known_coding()) {]==]
  [==[if (false) {]==])
mutant(http_line_unbounded fuzz_request requests apps/http/message_taker.cpp
  [==[bytes.size() - taken > most_) {]==]
  [==[bytes.size() - taken > most_ + 8) {]==])
mutant(http_head_unbounded fuzz_request requests apps/http/message_taker.cpp
  [==[(head_ += used) > most_) {]==]
  [==[(head_ += used) > most_ + 8) {]==])
mutant(http_body_off_by_one fuzz_request requests apps/serve/http/request_reader.cpp
  [==[parser_->body_limit(body_bytes);]==]
  [==[parser_->body_limit(body_bytes + 1);]==])
mutant(serve_integer_off_by_one fuzz_request requests apps/serve/answers.cpp
  [==[if (number < low || number > high) refuse]==]
  [==[if (number < low || number > high + 1) refuse]==])
mutant(serve_path_kept fuzz_request requests apps/serve/answers.cpp
  [==[|| (at > 0 && within_word(text[at - 1]))) {]==]
  [==[|| at > 0) {]==])
mutant(base64_unfinished fuzz_request requests apps/runtime/base64.cpp
  [==[base64_decode_final(&state) == 1;]==]
  [==[true;]==])
mutant(reply_body_off_by_one fuzz_reply replies apps/client/answer_reader.cpp
  [==[parser_->body_limit(body_bytes);]==]
  [==[parser_->body_limit(body_bytes + 1);]==])
mutant(reply_head_unbounded fuzz_reply replies apps/http/message_taker.cpp
  [==[(head_ += used) > most_) {]==]
  [==[(head_ += used) > most_ + 8) {]==])
mutant(reply_line_unbounded fuzz_reply replies apps/http/message_taker.cpp
  [==[bytes.size() - taken > most_) {]==]
  [==[bytes.size() - taken > most_ + 8) {]==])
mutant(reply_cut_is_whole fuzz_reply replies apps/client/answer_reader.cpp
  [==[if (!by_end || error) {]==]
  [==[if (error) {]==])
mutant(event_return_counts_twice fuzz_reply replies apps/client/event_reader.cpp
  [==[bytes.front() == '\n') {]==]
  [==[bytes.front() == '\r') {]==])
mutant(event_off_by_one fuzz_reply replies apps/client/event_reader.cpp
  [==[if (part.size() > most_ - std::min(most_, held())) {]==]
  [==[if (part.size() > most_ + 1 - std::min(most_, held())) {]==])
mutant(event_lines_run_together fuzz_reply replies apps/client/event_reader.cpp
  [==[event_.data += '\n';]==]
  [==[event_.data += "";]==])
mutant(served_size_off_by_one fuzz_reply replies apps/studio/server_answers.cpp
  [==[out >= 1 && out <= kMaxSide;]==]
  [==[out >= 0 && out <= kMaxSide;]==])
mutant(served_kept_above_all fuzz_reply replies apps/studio/server_answers.cpp
  [==[integer("kept_tokens", 0, out.visual_tokens);]==]
  [==[integer("kept_tokens", 0, out.visual_tokens + 1);]==])
mutant(served_code_unchecked fuzz_reply replies apps/studio/server_answers.cpp
  [==[if (!is_code(out.code)) out]==]
  [==[if (out.code.empty()) out]==])
