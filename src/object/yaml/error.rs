//! YAML errors with the messages of go-yaml, which kubectl shows.

use granit_parser::{ErrorKind, ScanError};
use std::fmt;

/// The error of a malformed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// The line of the file as go-yaml counts it; 0 when its message has none.
    pub line: usize,
    /// The problem.
    pub message: String,
}

/// Prints the error as kubectl does: `yaml: line 2: did not find expected key`.
impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "yaml: {}", self.message),
            line => write!(f, "yaml: line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for YamlError {}

impl YamlError {
    /// Adds the number of preceding lines of the file.
    pub(super) fn shifted_by(mut self, lines: usize) -> YamlError {
        self.line += lines;
        self
    }

    pub(super) fn too_deep(line: usize) -> YamlError {
        YamlError { line, message: format!("exceeded max depth of {}", super::MAX_DEPTH) }
    }

    pub(super) fn too_much(line: usize) -> YamlError {
        let message = "the document has too many values; write the items of a list as separate documents";
        YamlError { line, message: message.into() }
    }

    pub(super) fn too_many(line: usize) -> YamlError {
        YamlError { line, message: "the text has too many documents for its size; split it".into() }
    }

    /// Translates an error of the parser to go-yaml's message.
    ///
    /// go-yaml's scanner counts lines from 1 and its parser from 0. Like kubectl, kloop keeps this difference.
    pub(super) fn from_scan(error: &ScanError, text: &str) -> YamlError {
        use ErrorKind::*;
        let line = error.marker().line();
        let end = text.matches('\n').count();
        let parser = |message: &str| YamlError { line: line.saturating_sub(1), message: message.into() };
        let scanner = |message: &str| YamlError { line, message: message.into() };
        let at_end = |message: &str| YamlError { line: end, message: message.into() };
        match error.kind() {
            UnexpectedEofFlowSequence | UnclosedFlowCollection { open: '[' } => {
                at_end("did not find expected ',' or ']'")
            }
            UnexpectedEofFlowMapping | UnclosedFlowCollection { .. } => at_end("did not find expected ',' or '}'"),
            UnexpectedEofBlockMapping => at_end("did not find expected key"),
            UnexpectedEofBlockSequence => at_end("did not find expected '-' indicator"),
            UnclosedQuotedScalar => YamlError { line: end + 1, message: "found unexpected end of stream".into() },
            InvalidQuotedScalarIndent if line > end => scanner("found unexpected end of stream"),
            DocumentIndicatorInQuotedScalar => scanner("found unexpected document indicator"),
            ExpectedFlowSequenceSeparator | MismatchedFlowCollectionEnd { open: '[', .. } => {
                parser("did not find expected ',' or ']'")
            }
            ExpectedFlowMappingSeparator | MismatchedFlowCollectionEnd { .. } => {
                parser("did not find expected ',' or '}'")
            }
            ExpectedBlockMappingKey
            | InvalidIndentation
            | InvalidTrailingSingleQuotedScalar
            | InvalidTrailingDoubleQuotedScalar => parser("did not find expected key"),
            ExpectedBlockSequenceEntry => parser("did not find expected '-' indicator"),
            ExpectedNodeContent | MisplacedFlowCollectionEnd => parser("did not find expected node content"),
            ExpectedDocumentStart | MissingDocumentEndBeforeDirective => {
                parser("did not find expected <document start>")
            }
            UndeclaredTagHandle => parser("found undefined tag handle"),
            TabNotAllowed | TabInBlockIndentation | TabInIndentation | UnexpectedCharacter { .. } => {
                scanner("found character that cannot start any token")
            }
            TabAtBlockScalarStart | InvalidBlockScalarIndent => {
                scanner("found a tab character where an indentation space is expected")
            }
            MappingValueNotAllowed | InvalidColonPlacement => scanner("mapping values are not allowed in this context"),
            MappingKeyNotAllowed => scanner("mapping keys are not allowed in this context"),
            BlockSequenceEntryNotAllowed => scanner("block sequence entries are not allowed in this context"),
            SimpleKeyExpected | InvalidSimpleKey => scanner("could not find expected ':'"),
            MissingAnchorOrAliasName => scanner("did not find expected alphabetic or numeric character"),
            UnknownQuotedScalarEscape => scanner("found unknown escape character"),
            InvalidQuotedScalarHexEscape => scanner("did not find expected hexdecimal number"),
            InvalidBlockScalarHeader => scanner("did not find expected comment or line break"),
            ZeroBlockScalarIndent => scanner("found an indentation indicator equal to 0"),
            DuplicateVersionDirective => parser("found duplicate %YAML directive"),
            UnsupportedYamlMajorVersion => parser("found incompatible YAML document"),
            RecursionLimitExceeded => YamlError::too_deep(line),
            other => scanner(&other.to_string()),
        }
    }
}
