// Package pgcdc turns a PostgreSQL publication into typed transactions in commit order.
//
// # Decoding
//
//	XLogData ─▶ assembler ─begin … commit─▶ Transaction ─Changes─▶ Change ─Type.Decode─▶ Sink
//	             │ copies messages as they came                     │ tuples point into the staged bytes
//	             ▼                                                  ▼
//	            staging: pooled chunks or a spill file             Relation: the shape in force at that place
//
// The assembler checks the frame of each message (which transaction, which relation, how many rows) and copies its
// bytes. Rows are taken apart when the transaction is read, after its commit, so nothing of an open or aborted
// transaction is ever decoded. Their values stay bytes until Type.Decode reads one, in text or binary, and calls a Sink,
// so that none is boxed or copied on the way to a column.
//
// The server sends a transaction whole after its commit or, when it is large, in blocks while it runs. Blocks of several and whole
// transactions alternate; each is staged by itself, a rollback to a savepoint takes its rows out again, and all of
// it is handed out when its commit arrives: a reader of transactions cannot tell one kind from the other.
//
// typeCatalog resolves what the catalogue says of a type (domains, arrays, typmods) to a Type, which says how the values
// are held, whether their binary form is understood, and why the mirror refuses the type, if it does.
//
// What holds:
//   - Bytes from the server are checked before use and before memory is taken for them. They end in a value, an
//     ErrProtocol, an ErrStreaming or an ErrUnrepresentable, never in a panic. Errors contain no values.
//   - Text and binary of one value make the same Sink calls.
//   - Transaction.Rows is counted when rows are staged; reading the transaction gives as many, or an error.
//   - All open transactions together have Config.SpillBytes in memory, in chunks of which at least half is used, a few buffers, and the
//     Relations they name. Beyond that the largest is moved to its spill file, with what is still to come of it.
//   - Changes of one relation have the shape that OpRelation told last for it, in this transaction or in one before.
//
// No goroutine belongs to this half. The assembler is used by the goroutine that reads the stream. A Transaction belongs
// to whoever received it, until Release; it may be read in another goroutine than the assembler's, and stays readable when
// the connection is lost. Relations and Types never change and may be shared.
//
// Nothing survives a crash, and nothing has to: the server sends every transaction again that was not acknowledged, an
// open one from its first row. Spill files are deleted at the next connect.
package pgcdc
