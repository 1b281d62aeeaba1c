package iceberg

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Iceberg wants full URIs (https://iceberg.apache.org/spec/#manifests, file_path). We write file:// and the absolute path as
// it is: DuckDB, PyIceberg and Java open that alike, but differ on percent-encoding, so Open refuses a directory whose
// path would need it.
const uriScheme = "file://"

func toURI(path string) string { return uriScheme + path }

// toPath gives the local path of a URI that toURI made.
func toPath(uri string) (string, error) {
	path, ok := strings.CutPrefix(uri, uriScheme)
	if !ok || !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("%w: %q is not a local file URI", ErrCorrupt, uri)
	}
	return path, nil
}

// checkDir says whether every reader understands URIs below dir.
func checkDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("data directory %s is not an absolute path", dir)
	}
	if !utf8.ValidString(dir) || strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || strings.ContainsRune(`%#?*[]{}\"<>|^`+"`", r) }) {
		return fmt.Errorf("data directory %q has a character that Iceberg readers treat differently in URIs; choose a path without %s",
			dir, `% # ? * [ ] { } \ " < > | ^ and backquote`)
	}
	return nil
}

// tableDir is where a table lives: warehouse/<schema>/<table>-<first 8 digits of its uuid>. The uuid makes it unique for
// ever; case is folded because DuckDB compares a vector's data file path without case.
func (w *Warehouse) tableDir(name TableName, uuid string) string {
	return filepath.Join(w.root, pathName(name.Schema), pathName(name.Name)+"-"+uuid[:8])
}

// maxPathName keeps a directory's name below the 255 bytes of common file systems.
const maxPathName = 200

// pathName keeps a-z, 0-9 and _, lowers A-Z and turns every other byte into _.
func pathName(name string) string {
	b := []byte(name)
	if len(b) > maxPathName {
		b = b[:maxPathName]
	}
	for i, c := range b {
		switch {
		case c >= 'A' && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case c == '_', c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		default:
			b[i] = '_'
		}
	}
	return string(b)
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// The names below are all we ever create in a table's directories. RemoveOrphans touches nothing else.
var (
	tableDirForm     = regexp.MustCompile(`^[a-z0-9_]*-[0-9a-f]{8}$`)
	dataFileForm     = regexp.MustCompile(`^[0-9a-f-]{36}\.(parquet|puffin)$`)
	metadataFileForm = regexp.MustCompile(`^((data|deletes|snap)-[0-9a-f-]{36}\.avro|[0-9]{5,}-[0-9a-f-]{36}\.metadata\.json|version-hint(-[0-9a-f-]{36})?\.text)$`)
)

const (
	hintName       = "version-hint.text"
	metadataSuffix = ".metadata.json"
)

// hintForm is what we write into it: the name of a metadata file without the suffix.
var hintForm = regexp.MustCompile(`^[0-9]{5,}-[0-9a-f-]{36}$`)
