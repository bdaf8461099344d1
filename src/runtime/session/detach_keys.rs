//! The keys that end a session and leave the container running.
//!
//! Start reading at [`DetachKeys::scan`].

/// Maximum number of keys of a sequence.
const MAX_KEYS: usize = 16;

/// A sequence of keys, and how many of them were typed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetachKeys {
    keys: [u8; MAX_KEYS],
    count: usize,
    typed: usize,
}

/// kubectl's sequence.
pub const DEFAULT_DETACH_KEYS: &str = "ctrl-p,ctrl-q";

impl Default for DetachKeys {
    fn default() -> DetachKeys {
        let (ctrl_p, ctrl_q) = (16, 17);
        let mut keys = [0; MAX_KEYS];
        keys[..2].copy_from_slice(&[ctrl_p, ctrl_q]);
        DetachKeys { keys, count: 2, typed: 0 }
    }
}

impl DetachKeys {
    /// Parses a sequence: letters, `ctrl-LETTER` and `DEL`, with commas between them.
    pub fn parse(text: &str) -> Result<DetachKeys, String> {
        let mut found = DetachKeys { keys: [0; MAX_KEYS], count: 0, typed: 0 };
        for name in text.split(',') {
            let key = key_code(name).ok_or_else(|| format!("Unknown character: '{name}'"))?;
            let place = found.keys.get_mut(found.count).ok_or_else(|| format!("more than {MAX_KEYS} keys"))?;
            (*place, found.count) = (key, found.count + 1);
        }
        Ok(found)
    }

    /// Returns the bytes of the input to pass on, and whether the sequence was typed. Bytes that may begin the sequence are passed on with
    /// the first one that does not continue it.
    pub fn scan(&mut self, input: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(input.len());
        for byte in input {
            if *byte != self.keys[self.typed] {
                passed.extend_from_slice(&self.keys[..self.typed]);
                self.typed = 0;
            }
            match *byte == self.keys[self.typed] {
                true => self.typed += 1,
                false => passed.push(*byte),
            }
            if self.typed == self.count {
                self.typed = 0;
                return (passed, true);
            }
        }
        (passed, false)
    }
}

/// The byte that a terminal sends for a key.
fn key_code(name: &str) -> Option<u8> {
    match name.as_bytes() {
        [letter] => Some(*letter),
        b"DEL" => Some(127),
        [b'c', b't', b'r', b'l', b'-', letter @ (b'a'..=b'z' | b'@' | b'['..=b'_')] => Some(letter & 0x1f),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_parsed() {
        assert_eq!(DetachKeys::parse(DEFAULT_DETACH_KEYS), Ok(DetachKeys::default()));
        let found = DetachKeys::parse("a,ctrl-@,ctrl-[,ctrl-_,DEL").unwrap();
        assert_eq!(found.keys[..found.count], [b'a', 0, 27, 31, 127]);
        assert_eq!(DetachKeys::parse("ctrl-P").unwrap_err(), "Unknown character: 'ctrl-P'");
        assert_eq!(DetachKeys::parse("a,").unwrap_err(), "Unknown character: ''");
        assert_eq!(DetachKeys::parse(&vec!["a"; 17].join(",")).unwrap_err(), "more than 16 keys");
    }

    #[test]
    fn sequence_is_found_across_reads() {
        let mut keys = DetachKeys::default();
        assert_eq!(keys.scan(b"ls\x10"), (b"ls".to_vec(), false));
        assert_eq!(keys.scan(b"x"), (b"\x10x".to_vec(), false), "another key follows");
        assert_eq!(keys.scan(b"\x10\x10"), (b"\x10".to_vec(), false));
        assert_eq!(keys.scan(b"\x11more"), (Vec::new(), true));
        assert_eq!(keys.scan(b"a"), (b"a".to_vec(), false), "the next session starts over");
    }
}
