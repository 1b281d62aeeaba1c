package pgcdc

// Replay turns recorded pgoutput messages (the payloads of XLogData, protocol version 1 to 4, with or without streaming) into
// transactions, as a Source does with those that arrive. One goroutine uses it.
type Replay struct{ assembler *assembler }

// NewReplay makes a Replay; spillDir and spillBytes are as in Config.
func NewReplay(spillDir string, spillBytes int64) *Replay {
	return &Replay{newAssembler(spillDir, spillBytes)}
}

// Message takes one message, valid only during the call, and returns the transaction that it completes, or nil.
func (r *Replay) Message(data []byte) (*Transaction, error) { return r.assembler.message(data) }

// BuiltinType resolves a type whose OID is the same on every server, with a typmod (−1 for none). It has no name.
func BuiltinType(oid uint32, mod int32) *Type {
	return newTypeCatalog(nil).resolve(oid, mod, "")
}
