//! A pool of buffers for the pieces of long lists.
//!
//! Workers fill the buffers, and the connections' thread sends them. The allocator returns memory that another thread frees to a worker
//! only late, so that without the pool each worker would hold many pieces. Knows no list. Start reading at [`PieceBuffers::take_buffer`].

use crate::object::IgnorePoison;
use bytes::Bytes;
use std::sync::{Arc, Mutex};

/// Maximum number of buffers that are kept.
const MAX_BUFFERS: usize = 16;
/// Maximum size of a buffer that is kept; pieces with long objects are larger than usual.
const MAX_BUFFER_BYTES: usize = 1 << 20;

/// Buffers that are not in use.
#[derive(Default)]
pub struct PieceBuffers(Mutex<Vec<Vec<u8>>>);

impl PieceBuffers {
    /// Takes an empty buffer, or makes one.
    pub fn take_buffer(&self) -> Vec<u8> {
        self.0.lock().ignore_poison().pop().unwrap_or_default()
    }

    /// Makes the bytes of a message from a buffer. The buffer returns to the pool once they are sent.
    pub fn make_bytes(self: &Arc<PieceBuffers>, piece: Vec<u8>) -> Bytes {
        Bytes::from_owner(SentPiece { piece, buffers: self.clone() })
    }

    fn give_back(&self, mut piece: Vec<u8>) {
        let mut unused = self.0.lock().ignore_poison();
        if unused.len() < MAX_BUFFERS && piece.capacity() <= MAX_BUFFER_BYTES {
            piece.clear();
            unused.push(piece);
        }
    }
}

/// A piece during its transfer.
struct SentPiece {
    piece: Vec<u8>,
    buffers: Arc<PieceBuffers>,
}

impl AsRef<[u8]> for SentPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for SentPiece {
    fn drop(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_comes_back_empty_when_its_bytes_were_sent() {
        let buffers = Arc::new(PieceBuffers::default());
        let bytes = buffers.make_bytes(b"piece".to_vec());
        assert_eq!((&bytes[..], buffers.take_buffer().capacity()), (&b"piece"[..], 0));
        drop(bytes);
        let buffer = buffers.take_buffer();
        assert!(buffer.is_empty() && buffer.capacity() >= 5);
    }

    #[test]
    fn few_buffers_of_usual_size_are_kept() {
        let buffers = Arc::new(PieceBuffers::default());
        drop(buffers.make_bytes(vec![0; MAX_BUFFER_BYTES + 1]));
        assert_eq!(buffers.take_buffer().capacity(), 0);
        drop((0..=MAX_BUFFERS).map(|_| buffers.make_bytes(vec![0; 8])).collect::<Vec<_>>());
        assert_eq!((0..=MAX_BUFFERS).filter(|_| buffers.take_buffer().capacity() > 0).count(), MAX_BUFFERS);
    }
}
