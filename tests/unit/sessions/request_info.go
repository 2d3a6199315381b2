//go:build ignore

// Prints how Kubernetes' own API server reads the requests of stdin ("METHOD TARGET" lines):
// the table of test_kube_request.py. Run it in a module that requires k8s.io/apiserver.
package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func main() {
	factory := &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		method, target, _ := strings.Cut(lines.Text(), " ")
		where, err := url.ParseRequestURI(target)
		if err != nil {
			panic(err)
		}
		info, err := factory.NewRequestInfo(&http.Request{Method: method, URL: where})
		if err != nil {
			out.Encode(map[string]any{"request": lines.Text(), "error": true})
			continue
		}
		out.Encode(map[string]any{
			"request": lines.Text(), "is_resource": info.IsResourceRequest, "verb": info.Verb,
			"group": info.APIGroup, "version": info.APIVersion, "namespace": info.Namespace,
			"resource": info.Resource, "subresource": info.Subresource, "name": info.Name,
		})
	}
}
