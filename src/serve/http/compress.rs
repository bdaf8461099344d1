//! Compressed answers, for clients that accept them (`apiserver/pkg/endpoints/handlers/responsewriters`).

use crate::serve::{AnswerBody, HttpAnswer};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// Minimum size of an answer for compression.
const MIN_COMPRESSED_BYTES: usize = 128 << 10;

/// Whether the header `Accept-Encoding` names gzip.
pub fn accepts_gzip(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|clause| {
        let mut words = clause.split(';').map(str::trim);
        let is_gzip = words.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
        let is_refused = |word: &str| word.strip_prefix("q=").is_some_and(|q| q.parse::<f64>() == Ok(0.0));
        is_gzip && !words.any(is_refused)
    })
}

/// Compresses a large answer. This takes a while, so it must not run on the connection thread.
pub fn compress(mut answer: HttpAnswer) -> HttpAnswer {
    // Writing to memory does not fail; otherwise the answer is sent as it is.
    let packed = match &mut answer.body {
        AnswerBody::Whole(bytes) if bytes.len() >= MIN_COMPRESSED_BYTES => {
            let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).map(|packed| *bytes = packed).is_ok()
        }
        AnswerBody::Packed(document) if document.length() >= MIN_COMPRESSED_BYTES as u64 => {
            answer.body = AnswerBody::Whole(document.packed().to_vec());
            true
        }
        AnswerBody::List(first, list) => list.compress(std::mem::take(first)).map(|packed| *first = packed).is_ok(),
        _ => false,
    };
    if packed {
        answer.headers.push(("Content-Encoding", "gzip".into()));
        answer.headers.push(("Vary", "Accept-Encoding".into()));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_unless_its_weight_is_zero() {
        for accepted in ["gzip", "deflate, GZIP;q=0.5", "gzip;q=1"] {
            assert!(accepts_gzip(accepted), "{accepted}");
        }
        for refused in ["", "identity", "gzip;q=0", "gzip; q=0.0", "x-gzip"] {
            assert!(!accepts_gzip(refused), "{refused}");
        }
    }
}
