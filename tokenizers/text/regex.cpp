// PCRE2 after the step budget: a callout before every pattern item counts one step plus the
// distance the match has moved, so that quadratic scanning and backtracking spend the budget of the
// text. PCRE2's own match limit starts afresh at every start position and could not do that.
#include "tokenizers/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

// Steps for a text of n bytes. Published patterns take 5 to 40 a byte.
constexpr std::uint64_t kStepsPerText = 1'000'000;
constexpr std::uint64_t kStepsPerByte = 96;
constexpr std::uint32_t kMatchLimit = 1U << 24;
constexpr std::uint32_t kHeapLimitKiB = 64 * 1024;

template <auto release>
struct Releaser {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Releaser<pcre2_code_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Releaser<pcre2_match_data_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, Releaser<pcre2_match_context_free>>;
using CompileContextPtr =
    std::unique_ptr<pcre2_compile_context, Releaser<pcre2_compile_context_free>>;

}  // namespace

struct RegexScratch::State {
  std::uint64_t steps = 0;
  std::uint64_t budget = 0;
  std::size_t position = 0;
  std::size_t text_bytes = 0;
  MatchDataPtr data;
  MatchContextPtr context;
};

namespace {

// Called by PCRE2 before each item; the counter is the first argument's user pointer.
template <class State>
int count_step(pcre2_callout_block* block, void* user) {
  auto* state = static_cast<State*>(user);
  const std::size_t now = block->current_position, before = state->position;
  state->steps += 1 + (now > before ? now - before : before - now);
  state->position = now;
  return state->steps > state->budget ? PCRE2_ERROR_CALLOUT : 0;
}

std::string library_message(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

RegexScratch::RegexScratch(std::size_t text_bytes, std::string file)
    : state_(std::make_unique<State>()), file_(std::move(file)) {
  state_->budget = kStepsPerText + kStepsPerByte * text_bytes;
  state_->text_bytes = text_bytes;
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  if (!state_->data || !state_->context) throw std::bad_alloc();
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKiB);
  pcre2_set_callout(state_->context.get(), &count_step<State>, state_.get());
}

RegexScratch::~RegexScratch() = default;

void RegexScratch::spend(std::uint64_t steps) {
  state_->steps += steps;
  if (state_->steps > state_->budget) fail_budget();
}

void RegexScratch::fail_budget() const {
  throw Error(
      {.kind = ErrorKind::kGeneral,
       .code = "E_TOK_BUDGET",
       .file = file_,
       .where = "text of " + std::to_string(state_->text_bytes) + " bytes",
       .expected = "to be cut into words within " + std::to_string(state_->budget) + " steps",
       .found = "a text on which the patterns of this tokenizer need more",
       .hint = "shorten the longest run of one kind of character"});
}

struct Regex::Code {
  CodePtr code;
  const std::uint8_t* first_bytes =
      nullptr;  // bit set of the bytes a match may begin with, if known
};

Regex::Regex(std::unique_ptr<const Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::compile(std::string_view pattern, const PatternPlace& place) {
  if (pattern.size() > kMaxPatternBytes) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_REGEX_LENGTH",
                 .file = place.file,
                 .where = place.path,
                 .expected = "a pattern of at most " + std::to_string(kMaxPatternBytes) + " bytes",
                 .found = std::to_string(pattern.size()) + " bytes"});
  }
  return compile_native(translate_regex(pattern, place), place);
}

Regex Regex::compile_native(std::string_view pattern, const PatternPlace& place) {
  CompileContextPtr context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // ^ and $ stand at lines in Ruby's syntax; groups never capture, which keeps frames small.
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                     PCRE2_NO_AUTO_CAPTURE | PCRE2_AUTO_CALLOUT |
                                     PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions,
                             &error, &offset, context.get()));
  if (!code) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_REGEX",
                 .file = place.file,
                 .where = place.path,
                 .expected = "a regular expression",
                 .found = library_message(error)});
  }
  auto owned = std::make_unique<Code>();
  owned->code = std::move(code);
  pcre2_pattern_info(owned->code.get(), PCRE2_INFO_FIRSTBITMAP, &owned->first_bytes);
  return Regex(std::move(owned));
}

void Regex::cut(std::string_view text, RegexScratch& scratch, std::vector<Span>& out) const {
  RegexScratch::State& state = *scratch.state_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::uint8_t* first_bytes = code_->first_bytes;
  std::size_t done = 0;   // everything before is in `out`
  std::size_t start = 0;  // where the next search begins
  bool after_match = false;
  while (start <= text.size()) {
    if (first_bytes != nullptr) {  // most words of a later pattern fail here, without a call
      const auto may_begin = [&](char c) {
        const auto byte = byte_of(c);
        return (first_bytes[byte / 8] >> (byte % 8) & 1) != 0;
      };
      while (start < text.size() && !may_begin(text[start])) ++start;
      if (start == text.size()) break;
    }
    state.position = start;
    const int result = pcre2_match(code_->code.get(), subject, text.size(), start,
                                   PCRE2_NO_UTF_CHECK, state.data.get(), state.context.get());
    scratch.spend(1);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    if (result < 0) scratch.fail_budget();  // callout, match, depth or heap limit
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state.data.get());
    const std::size_t begin = ends[0], end = ends[1];
    if (begin >= end && after_match && end == done) {
      // An empty match where the last match ended: step over one character and search on.
      start += start < text.size() ? decode_utf8(text, start).length : 1;
      continue;
    }
    expects(begin >= done && end >= begin, "a match lies after the one before");
    if (begin > done) out.push_back({done, begin, false});
    out.push_back({begin, end, true});
    done = start = end;
    after_match = true;
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

Pattern::Pattern(Regex regex) : regex_(std::make_unique<Regex>(std::move(regex))) {}

Pattern::Pattern(std::string literal) : literal_(std::move(literal)) {
  expects(!literal_.empty(), "a literal pattern has characters");
}

void Pattern::cut(std::string_view text, RegexScratch& scratch, std::vector<Span>& out) const {
  if (regex_) {
    regex_->cut(text, scratch, out);
    return;
  }
  std::size_t done = 0;
  for (std::size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, done)) {
    if (at > done) out.push_back({done, at, false});
    done = at + literal_.size();
    out.push_back({at, done, true});
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

}  // namespace tessera
