//! A cache of long documents in compressed form, which all threads of a process share. Each is built once, until its content changes.
//!
//! Knows no content; a document is found by the hash of its sources. Start reading at [`PackedDocuments::find`].

use crate::object::IgnorePoison;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

/// Maximum number of documents that are kept.
const MAX_DOCUMENTS: usize = 2;
/// Maximum compressed size of a document that is kept.
const MAX_BYTES: usize = 4 << 20;

/// A document in the form of gzip.
#[derive(Debug, Default)]
pub struct PackedDocument {
    packed: Vec<u8>,
    length: u64,
}

impl PackedDocument {
    /// The compressed bytes.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// The length of the document.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the document.
    pub fn unpack(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.length).unwrap_or_default());
        GzDecoder::new(&*self.packed).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Compresses a document while it is written.
pub struct DocumentPacker {
    encoder: GzEncoder<Vec<u8>>,
    length: u64,
}

impl Default for DocumentPacker {
    fn default() -> DocumentPacker {
        DocumentPacker { encoder: GzEncoder::new(Vec::new(), Compression::fast()), length: 0 }
    }
}

impl DocumentPacker {
    /// Ends the document.
    pub fn finish(self) -> io::Result<PackedDocument> {
        let mut packed = self.encoder.finish()?;
        packed.shrink_to_fit();
        Ok(PackedDocument { packed, length: self.length })
    }
}

impl Write for DocumentPacker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.encoder.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }
}

/// A document that is being read in pieces.
pub struct DocumentReader(GzDecoder<SharedBytes>);

impl DocumentReader {
    /// Begins at the start of a document.
    pub fn new(document: Arc<PackedDocument>) -> DocumentReader {
        DocumentReader(GzDecoder::new(SharedBytes { document, position: 0 }))
    }
}

impl Read for DocumentReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// The compressed bytes of a document that is not copied.
struct SharedBytes {
    document: Arc<PackedDocument>,
    position: usize,
}

impl Read for SharedBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut rest = self.document.packed.get(self.position..).unwrap_or_default();
        let read = rest.read(buffer)?;
        self.position += read;
        Ok(read)
    }
}

/// Documents with the hash of their sources, the oldest one first.
type KeptDocuments = VecDeque<(String, Arc<PackedDocument>)>;

/// The newest documents by the hash of their sources; clones share them.
#[derive(Clone, Debug, Default)]
pub struct PackedDocuments(Arc<Mutex<KeptDocuments>>);

impl PackedDocuments {
    /// Returns a document that is kept.
    pub fn find(&self, hash: &str) -> Option<Arc<PackedDocument>> {
        let kept = self.0.lock().ignore_poison();
        kept.iter().find(|(known, _)| known == hash).map(|(_, document)| document.clone())
    }

    /// Keeps a document in place of the oldest one.
    pub fn keep(&self, hash: &str, document: &Arc<PackedDocument>) {
        if document.packed.len() > MAX_BYTES {
            return;
        }
        let mut kept = self.0.lock().ignore_poison();
        kept.retain(|(known, _)| known != hash);
        kept.push_back((hash.to_owned(), document.clone()));
        while kept.len() > MAX_DOCUMENTS {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(text: &[u8]) -> Arc<PackedDocument> {
        let mut packer = DocumentPacker::default();
        text.chunks(7).for_each(|piece| packer.write_all(piece).unwrap());
        Arc::new(packer.finish().unwrap())
    }

    #[test]
    fn document_is_read_as_it_was_written() {
        let text = b"some words ".repeat(1000);
        let document = pack(&text);
        assert_eq!((document.length(), document.unpack().unwrap()), (text.len() as u64, text.clone()));
        assert!(document.packed().len() < text.len() / 10);
        let (mut reader, mut read, mut piece) = (DocumentReader::new(document), Vec::new(), [0; 100]);
        while let Ok(length @ 1..) = reader.read(&mut piece) {
            read.extend_from_slice(&piece[..length]);
        }
        assert_eq!(read, text);
    }

    #[test]
    fn only_the_newest_documents_are_kept() {
        let documents = PackedDocuments::default();
        for hash in ["a", "b", "a", "c"] {
            documents.keep(hash, &pack(hash.as_bytes()));
        }
        let is_kept = |hash: &str| documents.find(hash).is_some();
        assert_eq!(["a", "b", "c"].map(is_kept), [true, false, true]);
        let large = PackedDocument { packed: vec![0; MAX_BYTES + 1], length: 1 };
        documents.keep("large", &Arc::new(large));
        assert_eq!(["a", "c", "large"].map(is_kept), [true, true, false]);
    }
}
