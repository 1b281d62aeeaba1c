// Package test holds what needs several packages at once. Its own tests hold the rules of the source tree; the folders
// below it run the parts together.
package test
