//! Mistakes in regular expressions.

use super::MAX_REPEAT;

/// Reason that RE2 would not take an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegularExpressionError {
    #[error("the expression is too large")]
    TooLarge,
    #[error("missing closing )")]
    UnclosedGroup,
    #[error("unexpected )")]
    UnopenedGroup,
    #[error("missing > of a group's name")]
    UnclosedGroupName,
    #[error("bad name of a group: {0:?}")]
    GroupName(String),
    #[error("after (? only the flags i, m, s and U or a name are allowed; lookaround is not supported")]
    Flags,
    #[error("nothing to repeat before {0}")]
    NothingToRepeat(String),
    #[error("{0} follows another repetition; use a group")]
    RepeatedTwice(String),
    #[error("bad count {0}: at most {MAX_REPEAT}, also of repetitions in repetitions")]
    Count(String),
    #[error("missing closing ]")]
    UnclosedClass,
    #[error("a range in [] must not end before it begins")]
    ClassRange,
    #[error("unknown class [:{0}:]")]
    UnknownClass(String),
    /// `p` or `x` with a brace that does not end.
    #[error("missing }} behind \\{0}{{")]
    UnclosedBrace(char),
    #[error("missing name behind \\p")]
    NoCharacterGroup,
    #[error("unknown group of characters \\p{{{0}}}")]
    UnknownCharacterGroup(String),
    #[error("bad escape \\at the end")]
    EscapeAtEnd,
    #[error("bad escape \\{0}")]
    Escape(char),
    #[error("bad escape \\{0}: there are no references to groups")]
    Reference(char),
    #[error("bad escape \\of a number above \\377")]
    Octal,
    #[error("\\x needs two digits")]
    HexadecimalDigits,
    #[error("bad escape \\x{0}: two digits, or {{}} around a number up to ff")]
    Hexadecimal(String),
}
