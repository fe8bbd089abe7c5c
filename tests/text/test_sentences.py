import itertools
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latentmt.text.sentences import Line, Part, split_line

# “|” marks where a sentence ends, and stands for one space.
SENTENCES = [
    # Plain ends.
    "Es regnet.|Wir bleiben hier.",
    "Was?!|Wirklich!!|Ja.",
    "Ist das so?|„Nein.“|Doch!",
    "Er sagte: „Ich komme.“|Dann ging er.",
    "He said, “I'm coming.”|Then he left.",
    'He said "No."|She left.',
    "Sie ging (endlich.)|Er blieb.",
    "»Komm!«|»Nein!«",
    "Das war alles.|20 Leute kamen.",
    "Das war alles.|(Fast alles.)|[Mehr nicht.]",
    "„Wo ist sie?“|– „Zu Hause.“",
    "Wir brauchen viel.|• Brot.|• milch!|¿qué?",
    "It was cheap.|$5 was enough.",
    "Ich kann nicht mehr …|Hilfe!",
    "Super!|😀 Danke.",
    "I don't.|You do.",
    "Es fuhr 100 km/h.|Peter nicht.",
    "Am liebsten lese-ich.|Peter auch.",
    # Not an end.
    "Er … ging.",
    "Warte... ich komme.",
    "“Really?” – he asked.",
    "„Wirklich?“ (und er lachte) sagte sie.",
    "yahoo! ist ein Name.",
    "Das kostet 3.50 Euro bei example.com.",
    "Ende.Anfang",
    "... Und dann?",
    "Hmm ! ?|Ja",
    # German abbreviations.
    "Obst, z. B. Äpfel, z.B. Birnen, d. h. Sie essen u. a. Die-Tomate.",
    "Hr. Dr. Meier und Prof. Dr. med. Schmidt, Fr. Kunz, Dipl.-Ing. Abel.",
    "Laut Art. 5 Abs. 3 Nr. 2 sind es ca. 10 Mio. Euro bzw. Dollar.",
    "Wenden Sie sich ggf. Sie selbst, evtl. Ihre Frau, inkl. Kinder.",
    "Die Karl-Marx-Str. Nummer 3, Hauptstr. Ecke St. Georg.",
    "Am 5. Jan. Abend, im Okt. Nebel, 44 v. Chr. Caesar.",
    "Eine neue Art.|Peter fand sie.",
    "Äpfel usw.|Birnen etc.|Nichts mehr.",
    "Äpfel usw. sind Obst.",
    "Es kostet 3 Mrd.|Das ist viel.",
    # English abbreviations.
    "Mr. Smith, Mrs. Jones, Ms. Lee and Dr. Who vs. The Master, i.e. The Doctor, e.g. Tom.",
    "He is No. 1 in St. Louis and the U.S. Senate.",
    "“No.|Peter won't.”",
    "Works for Apple Inc. Cupertino and Foo Co. Ltd. London.",
    "He works for Apple Inc.|They pay well.",
    "He lives in the U.S.|She does not.",
    "At 5 p.m. I left.",
    "It ended at 5 p.m.|The rest slept.",
    # Initials.
    "J. R. R. Tolkien und Angela D. Merkel trafen J.-P. Sartre.",
    "Nimm Vitamin C.|Das hilft.",
    # Numbers.
    "Am 3. Oktober und am 3. 10. Montag, im 19. Jahrhundert.",
    "Das 19./20. Jahrhundert begann am 24.12. Abends.",
    "Heinrich VIII. war König, Ludwig XIV. König der Franzosen.",
    "Das war Ludwig XIV.|Er war König.",
    "Es geschah 1990.|Peter lachte.",
    "He was 12.|Then he left.",
    "„Er ist 12.“|Peter nickte.",
    "1. Die Anfänge",
    "II. Das Ende",
]


def always(text: str) -> bool:
    return True


def never(text: str) -> bool:
    return False


def at_most(limit: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= limit


def words_at_most(limit: int) -> Callable[[str], bool]:
    return lambda text: len(text.split()) <= limit


def no_odd_length(text: str) -> bool:
    """Longer is not always worse."""
    return len(text) % 2 == 0


def texts(line: Line) -> list[str]:
    return [part.text for part in line.parts]


@pytest.mark.parametrize("marked", SENTENCES)
def test_sentence_boundaries(marked: str) -> None:
    assert texts(split_line(marked.replace("|", " "), always)) == marked.split("|")


def test_full_width_marks_end_a_sentence_without_white_space() -> None:
    assert split_line("你好。我很好！ 你呢？」", always) == Line(
        "", (Part("你好。", ""), Part("我很好！", " "), Part("你呢？」", ""))
    )


def test_white_space_is_kept_as_it_is() -> None:
    line = split_line("\t\u00a0Ja.\u2028 \u3000Nein.  \n", always)
    assert line == Line("\t\u00a0", (Part("Ja.", "\u2028 \u3000"), Part("Nein.", "  \n")))
    assert line.joined(["Yes.", "No."]) == "\t\u00a0Yes.\u2028 \u3000No.  \n"


@pytest.mark.parametrize("text", ["", " ", "\u00a0\t\u2028\x1f\x85"])
def test_a_line_without_text_has_no_parts(text: str) -> None:
    line = split_line(text, never)
    assert line == Line(text, ())
    assert line.joined([]) == text


def test_joining_needs_a_translation_for_every_part() -> None:
    with pytest.raises(ValueError, match="argument"):
        split_line("Ja. Nein.", always).joined(["Yes."])


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        # A sentence that fits stays whole, whatever it contains; each sentence is looked at for itself.
        ("eins, zwei; drei: vier", 4, ["eins, zwei; drei: vier"]),
        ("Eins, zwei. Drei vier fünf, sechs.", 3, ["Eins, zwei.", "Drei vier fünf,", "sechs."]),
        # The stronger boundary, even if a weaker one is nearer to the middle.
        ("das ist so; aber das, das ist anders", 6, ["das ist so;", "aber das, das ist anders"]),
        ("also ist das nicht. doch, es ist so", 6, ["also ist das nicht.", "doch, es ist so"]),
        ("das, was ist (und nicht war), gilt", 5, ["das, was ist", "(und nicht war), gilt"]),
        ("es war so – und nicht so wie, sagst du", 7, ["es war so –", "und nicht so wie, sagst du"]),
        # Of one kind, the one nearest to the middle.
        ("a b, c d, e f, g h", 4, ["a b, c d,", "e f, g h"]),
        # Not one that would leave a word or two alone.
        ("ja, eins zwei drei vier fünf sechs sieben acht", 8, ["ja, eins zwei drei vier", "fünf sechs sieben acht"]),
        # A comma in a number is none; then the space nearest to the middle.
        ("aaa 1,5 bbb 2:3", 2, ["aaa 1,5", "bbb 2:3"]),
    ],
)
def test_a_long_sentence_is_split_at_its_clauses(text: str, limit: int, expected: list[str]) -> None:
    assert texts(split_line(text, words_at_most(limit))) == expected


def test_a_long_sentence_is_not_split_after_an_abbreviation() -> None:
    text = "wir essen heute alle z. B. sehr gern, und sehr viel, frisches Obst"
    assert texts(split_line(text, words_at_most(9)))[0] == "wir essen heute alle z. B. sehr gern,"


def test_a_long_word_is_split_anywhere_and_joined_without_a_space() -> None:
    line = split_line("so abcdefgh!", at_most(5))
    assert line == Line("", (Part("so", " "), Part("abcd", ""), Part("efgh!", "")))


@pytest.mark.parametrize(
    "character", ["e\u0301", "👩\u200d👧", "❤\ufe0f", "👍🏽", "🇩🇪", "1\ufe0f\u20e3", "\ud83d\ude00"]
)
def test_grapheme_clusters_are_not_split(character: str) -> None:
    size = len(character)
    for count, limit in itertools.product((2, 3, 7), (size, size + 1, 2 * size + 1)):
        parts = texts(split_line(character * count, at_most(limit)))
        assert "".join(parts) == character * count
        assert all(part == character * (len(part) // size) for part in parts)


def test_full_width_marks_keep_their_closing_marks() -> None:
    assert texts(split_line("好！\ufe0f好", always)) == ["好！\ufe0f好"]


def test_a_long_sentence_is_split_near_its_middle() -> None:
    words = [len(text.split()) for text in texts(split_line("wort " * 70, words_at_most(60)))]
    assert words == [35, 35]
    words = [len(text.split()) for text in texts(split_line("wort " * 1000, words_at_most(60)))]
    assert len(words) <= 2 * 1000 / 60
    assert max(words) <= 2 * min(words)


FRAGMENTS = [*"aB3 .,;:!?…()„“\"'–\u00a0\t\u2028\u0301\u200d\ufe0f。！，🇩👩", "z. B. ", "Dr. ", "Die "]
ANY_TEXT = st.text() | st.lists(st.sampled_from(FRAGMENTS)).map("".join)
ANY_FITS = st.sampled_from([always, never, no_odd_length, at_most(1), at_most(7), words_at_most(1), words_at_most(4)])


@given(text=ANY_TEXT, fits=ANY_FITS)
@example(text="a\u0301\u0301\u0301", fits=never)
@example(text=" \u0301", fits=never)
@example(text="🇩🇪🇩", fits=at_most(1))
def test_nothing_is_lost_and_every_part_fits(text: str, fits: Callable[[str], bool]) -> None:
    line = split_line(text, fits)
    assert line.joined(texts(line)) == text
    assert line.before == text[: len(text) - len(text.lstrip())]
    for part in line.parts:
        assert part.text
        assert part.text == part.text.strip()
        assert not part.after.strip()
        assert len(part.text) == 1 or fits(part.text)


@given(
    text=st.lists(st.sampled_from(["a", "B", "e\u0301", "o\u0323\u0308", " ", ". ", ", "])).map("".join),
    limit=st.integers(3, 9),
)
def test_a_combining_mark_stays_with_its_letter(text: str, limit: int) -> None:
    for part in split_line(text, at_most(limit)).parts:
        assert not unicodedata.combining(part.text[0])


@pytest.mark.parametrize(
    "text",
    ["wort " * 10_000, "wort, " * 10_000, "Wort. " * 10_000, "x" * 50_000, "J. " * 10_000, "ja; " + "wort " * 10_000],
)
def test_splitting_a_very_long_line_takes_few_scans(text: str) -> None:
    seen = 0

    def fits(part: str) -> bool:
        nonlocal seen
        seen += len(part)
        return len(part) <= 200

    split_line(text, fits)
    assert seen < 15 * len(text)


def test_a_line_feed_ends_a_sentence() -> None:
    line = split_line("Titel\n\n  Untertitel \r\nein Satz, \tder weitergeht", lambda text: True)
    assert [part.text for part in line.parts] == ["Titel", "Untertitel", "ein Satz, \tder weitergeht"]
    assert [part.after for part in line.parts] == ["\n\n  ", " \r\n", ""]
    assert split_line("\n \n", lambda text: True) == Line("\n \n", ())
