"""The text in a file's bytes: decoded where the encoding is certain, else a named error.

UTF-8 goes first, then byte order marks, then UTF-16 by its zero bytes, then GB18030 (GBK and GB2312
are parts of it). The last has no mark and takes almost any bytes, so it counts as certain only if
what comes out is the Chinese that people write: characters of GB2312's first level and punctuation,
the most common ones among them.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass, field

UTF8 = "utf-8"
GB18030 = "gb18030"
_GB18030_MARK = b"\x84\x31\x95\x33"
MARKS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (_GB18030_MARK, GB18030),
)
"""Byte order marks; UTF-32's little-endian one begins like UTF-16's, so it stands before it."""
NAMES = {UTF8: "UTF-8", GB18030: "GBK", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16",
         "utf-32-le": "UTF-32", "utf-32-be": "UTF-32"}  # fmt: skip
"""What people, editors and iconv call them."""
_COMMON = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过"
    "发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本"
    "前开但因只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很"
    "最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度"
    "门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电"
    "数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展马"
    "科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万"
    "取拉格望觉术领共确传师观清今切院让识候带导争运请答助服户客单订输语言句简词写读码查内容"
)  # fmt: skip
_SPACES = frozenset("\t\n\r\f\x1a")
_LINE_END = re.compile(r"\r\n|\r|\n")
_WRITTEN_SHARE = 0.9
_COMMON_SHARE = 0.2
_ZERO_RATIO = 4
_FEW_ZEROS = 4
_LOOK_CHARS = 200_000


class UndecodableError(Exception):
    """Bytes whose text is not certain.

    Attributes:
        message: What is wrong.
        hint: The way out.
        offset: Of the first byte that UTF-8 does not allow, from 0.
        line: Where that is, from 1.
        column: In characters, from 1.
    """

    def __init__(self, message: str, *, hint: str, offset: int, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.offset = offset
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The text of a file.

    Attributes:
        text: Without the mark; line ends as they were.
        encoding: A codec that brings the bytes back.
        mark: The byte order mark, or nothing.
    """

    text: str = field(repr=False)
    encoding: str
    mark: bytes = b""

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return self.mark + self.text.encode(self.encoding)


def decode_text(data: bytes) -> Decoded:
    """The text in a file's bytes.

    Raises:
        UndecodableError: If its encoding is not certain, or the bytes break it.
    """
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return _marked(data, mark, encoding)
    wide = _wide(data)
    if wide is not None:
        return wide
    try:
        return Decoded(text=data.decode(UTF8), encoding=UTF8)
    except UnicodeDecodeError as exc:
        if _is_chinese(data):
            return Decoded(text=data.decode(GB18030), encoding=GB18030)
        raise _refusal(data, exc) from exc


def place_of(text: str) -> tuple[int, int]:
    """The line and column, from 1, of what stands behind a text."""
    lines = _LINE_END.split(text)
    return len(lines), len(lines[-1]) + 1


def _marked(data: bytes, mark: bytes, encoding: str) -> Decoded:
    body = data[len(mark) :]
    try:
        return Decoded(text=body.decode(encoding), encoding=encoding, mark=mark)
    except UnicodeDecodeError as exc:
        line, column = place_of(body[: exc.start].decode(encoding, errors="replace"))
        offset = len(mark) + exc.start
        raise UndecodableError(
            f"broken {NAMES[encoding]}: byte {offset:,} and those behind it are no character",
            hint=f"the byte order mark says {NAMES[encoding]}: save the file as UTF-8 without one",
            offset=offset,
            line=line,
            column=column,
        ) from exc


def _wide(data: bytes) -> Decoded | None:
    """UTF-16 or UTF-32 without a mark, if the zero bytes of the text leave no doubt.

    Text in UTF-8 or GBK has no zero byte. In UTF-16 the line ends, spaces and digits of any text
    have one, always on the same side.
    """
    if b"\0" not in data or len(data) % 2:
        return None
    if len(data) % 4 == 0 and len(data) > 4:  # noqa: PLR2004 - bytes of a UTF-32 character
        for encoding in ("utf-32-le", "utf-32-be"):
            if (text := _plausible(data, encoding)) is not None:
                return Decoded(text=text, encoding=encoding)
    even, odd = data[0::2].count(0), data[1::2].count(0)
    if (even + odd) * _FEW_ZEROS < len(data) and _is_utf8(data):
        return None  # a text in UTF-8 with a stray zero byte in it: binary
    found = {e: t for e in ("utf-16-le", "utf-16-be") if (t := _plausible(data, e)) is not None}
    if odd > _ZERO_RATIO * even:
        found.pop("utf-16-be", None)
    elif even > _ZERO_RATIO * odd:
        found.pop("utf-16-le", None)
    if len(found) != 1:
        return None
    encoding, text = found.popitem()
    return Decoded(text=text, encoding=encoding)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode(UTF8)
    except UnicodeDecodeError:
        return False
    return True


def _plausible(data: bytes, encoding: str) -> str | None:
    """The text, if every character of it is one that people write."""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    odd = (c for c in set(text[:_LOOK_CHARS]) if c not in _SPACES)
    if any(unicodedata.category(c) in {"Cc", "Cn", "Co", "Cs"} for c in odd):
        return None
    return text


def _is_chinese(data: bytes) -> bool:
    """Whether bytes that are no UTF-8 are Chinese text in GBK, without doubt."""
    if b"\0" in data or (text := _plausible(data, GB18030)) is None:
        return False
    wide = [c for c in text[:_LOOK_CHARS] if c > "\x7f"]
    ideographs = [c for c in wide if "\u4e00" <= c <= "\u9fff"]
    if not ideographs or text.encode(GB18030) != data:
        return False
    written = sum(map(_is_first_level, wide)) / len(wide)
    common = sum(c in _COMMON for c in ideographs) / len(ideographs)
    return written >= _WRITTEN_SHARE and common >= _COMMON_SHARE


def _is_first_level(character: str) -> bool:
    """Whether GB2312 has it among punctuation, wide letters or the 3,755 common characters."""
    try:
        lead = character.encode("gb2312")[0]
    except UnicodeEncodeError:
        return False
    return lead in {0xA1, 0xA2, 0xA3} or 0xB0 <= lead <= 0xD7  # noqa: PLR2004 - GB2312's rows


def _refusal(data: bytes, exc: UnicodeDecodeError) -> UndecodableError:
    likely = _likely(data)
    line, column = place_of(data[: exc.start].decode(UTF8, errors="replace"))
    known = f", for example with: iconv -f {likely or 'ITS-ENCODING'} -t UTF-8"
    guess = f" (it may be {likely})" if likely else ""
    return UndecodableError(
        f"not UTF-8{guess}: byte {exc.start:,} is 0x{data[exc.start]:02X}",
        hint=f"save the file as UTF-8{known}",
        offset=exc.start,
        line=line,
        column=column,
    )


def _likely(data: bytes) -> str:
    """An encoding that the bytes may have, for the message; nothing if none is near."""
    if b"\0" in data:
        return "" if len(data) % 2 else "UTF-16"
    text = _plausible(data, GB18030)
    wide = [c for c in (text or "")[:_LOOK_CHARS] if c > "\x7f"]
    if wide and sum("\u4e00" <= c <= "\u9fff" for c in wide) * 2 > len(wide):
        return "GBK"
    return ""
