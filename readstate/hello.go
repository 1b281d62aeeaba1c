package readstate

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Version is the protocol's. It changes when an older peer would misread a newer one; additions are capabilities.
const Version = 1

// magic opens the connection on both sides.
const magic = "pgmirror"

const (
	capabilityProgress = "progress"
	capabilityPast     = "past"  // a pin may have at_time_us and changes
	capabilityEnded    = "ended" // answers of the kind ended
)

// hello is the JSON both sides send first. Its place on the wire is the same in every version.
type hello struct {
	Program      string   `json:"program"`
	Capabilities []string `json:"capabilities,omitempty"`
	// MaxInFlight is how many requests the server takes from a connection before it answered one.
	MaxInFlight int      `json:"max_in_flight,omitempty"`
	SearchPath  []string `json:"search_path,omitempty"`
	Error       string   `json:"error,omitempty"` // why the server turns the client away
}

func writeHello(w *bufio.Writer, version uint32, h hello) error {
	if _, err := w.WriteString(magic); err != nil {
		return err
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint32(nil, version)); err != nil {
		return err
	}
	return writeFrame(w, h)
}

// readHello returns the peer's version; the hello is read whatever that version is.
func readHello(r io.Reader) (uint32, hello, error) {
	var head [len(magic) + 4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, hello{}, fmt.Errorf("read hello: %w", noEOF(err))
	}
	if string(head[:len(magic)]) != magic {
		return 0, hello{}, protocolErrorf("the peer is no pgmirror")
	}
	text, _, err := readFrame(r, 0)
	if err != nil {
		return 0, hello{}, fmt.Errorf("read hello: %w", noEOF(err))
	}
	var h hello
	if err := json.Unmarshal(text, &h); err != nil {
		return 0, hello{}, protocolErrorf("hello is no JSON: %v", err)
	}
	return binary.LittleEndian.Uint32(head[len(magic):]), h, nil
}
