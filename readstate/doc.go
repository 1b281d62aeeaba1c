// Package readstate freezes what one query may see, keeps it alive until it is released, and serves it over a Unix socket.
//
//	mirror ──Provider──▶ Server ══ Unix socket ══▶ Client ──*State──▶ duckdb
//	                       │                          │
//	              pins of the connection     schemas, vectors by ID, columns by batch and field
//
// A State is the same value on both sides of the socket: its Files and Batches carry frozen deletion vectors, and a
// Batch's ColumnReader hands out Arrow arrays on the Go heap. The bytes on the wire are written down in
// docs/formats/readstate.md.
//
// Invariants:
//   - Every pin of a connection is released exactly once: by its release request, or when the connection ends. The
//     provider's Release runs only after the last request that reads through the pin has ended.
//   - Row k of a batch never changes and a frozen vector never changes, so the client keeps both by ID. A scan repeated
//     over the same batches moves no bytes.
//   - A table whose vectors the client does not have is never shown with too many rows: it has an Err until Complete.
//   - A length read from the socket is compared with its limit before anything is allocated, and a large body is
//     allocated only as its bytes arrive. Bytes that break the protocol end their own connection and nothing else.
//   - Client-side batch IDs are unique in the client's process: those of a mirror that was started again never meet the
//     IDs that an older connection handed out.
//
// Goroutines. Serve owns one goroutine a connection, which reads its requests, and one for each request in flight; all
// have ended when Serve returns. A Client owns two, one that reads answers and one that writes requests; both have ended
// when Close returns. State.Release only queues a frame and may be called from anywhere, also after Close.
//
// Nothing here survives a crash. A client whose server died gets ErrLost and dials again; the pins died with the server.
package readstate
