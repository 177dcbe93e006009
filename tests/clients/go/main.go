// The stock Go client against a running driftline.
//
//	client -mode plain|tokens|tls|mtls -address HOST:PORT [-certs DIR] [-token T] [-reader T]
//
// Prints its versions, then one JSON line a check: {"name", "ok", "why"}.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"driftline/clients/pb"
)

const (
	service = "driftline.v1.LinkPrediction"
	patient = 60 * time.Second
	// 10,000 pairs of such names are just below 4 MiB, one byte more a name is above.
	nameNearLimit = 205
)

var (
	mode    = flag.String("mode", "plain", "")
	address = flag.String("address", "", "")
	certs   = flag.String("certs", "", "")
	token   = flag.String("token", "", "")
	reader  = flag.String("reader", "", "")
)

type client struct {
	channel *grpc.ClientConn
	api     pb.LinkPredictionClient
	health  health.HealthClient
}

type check struct {
	name string
	run  func(context.Context, *client) error
}

func dial(how credentials.TransportCredentials) (*client, error) {
	channel, err := grpc.NewClient(*address, grpc.WithTransportCredentials(how))
	if err != nil {
		return nil, err
	}
	return &client{channel, pb.NewLinkPredictionClient(channel), health.NewHealthClient(channel)}, nil
}

func expect(what bool, text string, values ...any) error {
	if what {
		return nil
	}
	return fmt.Errorf(text, values...)
}

func expectCode(err error, wanted codes.Code, word string) error {
	got := status.Convert(err)
	if err == nil {
		return fmt.Errorf("was answered, though %v was expected", wanted)
	}
	return expect(got.Code() == wanted && strings.Contains(got.Message(), word),
		"%v %q instead of %v with %q", got.Code(), got.Message(), wanted, word)
}

func pairs(count, nameBytes int) *pb.ScoreRequest {
	request := &pb.ScoreRequest{}
	for i := 0; i < count; i++ {
		name := fmt.Sprintf("%0*d", nameBytes, i)
		request.Pairs = append(request.Pairs, &pb.Pair{Src: name, Dst: name})
	}
	return request
}

func event(src, dst string, time int64) *pb.EdgeEvent {
	return &pb.EdgeEvent{Source: &pb.EdgeEvent_Src{Src: src}, Destination: &pb.EdgeEvent_Dst{Dst: dst},
		When: &pb.EdgeEvent_Time{Time: time}, Amount: &pb.EdgeEvent_Weight{Weight: 1}}
}

func events(c context.Context, k *client, src string, count int) ([]*pb.EdgeEvent, error) {
	model, err := k.api.GetModel(c, &pb.GetModelRequest{})
	if err != nil {
		return nil, err
	}
	var list []*pb.EdgeEvent
	for i := 0; i < count; i++ {
		list = append(list, event(src, fmt.Sprintf("go-peer-%d", i), model.TrainedUntil+int64(i)))
	}
	return list, nil
}

func ingest(c context.Context, k *client, batches ...[]*pb.EdgeEvent) (*pb.IngestResponse, error) {
	stream, err := k.api.Ingest(c)
	if err != nil {
		return nil, err
	}
	for _, batch := range batches {
		if err := stream.Send(&pb.IngestRequest{Events: batch}); err != nil {
			break // the reason comes with the answer
		}
	}
	return stream.CloseAndRecv()
}

var plain = []check{
	{"unary_get_model", func(c context.Context, k *client) error {
		model, err := k.api.GetModel(c, &pb.GetModelRequest{})
		if err != nil {
			return err
		}
		return expect(model.Architecture == "diffdyg" && len(model.Version) == 16, "%v", model)
	}},
	{"unary_score", func(c context.Context, k *client) error {
		answer, err := k.api.Score(c, pairs(3, 5))
		if err != nil {
			return err
		}
		for _, score := range answer.Scores {
			if score.Probability <= 0 || score.Probability >= 1 {
				return fmt.Errorf("%v", answer)
			}
		}
		return expect(len(answer.Scores) == 3, "%v", answer)
	}},
	{"unary_top_k", func(c context.Context, k *client) error {
		given := []string{"n000019", "n000035", "n000060"}
		answer, err := k.api.TopK(c, &pb.TopKRequest{Node: "go-top", K: 2, Candidates: given, OnlyGiven: true})
		if err != nil {
			return err
		}
		return expect(len(answer.Candidates) == 2 && answer.Scored == 3 && !answer.Known, "%v", answer)
	}},
	{"unary_get_window", func(c context.Context, k *client) error {
		list, err := events(c, k, "go-window", 3)
		if err != nil {
			return err
		}
		if _, err = ingest(c, k, list); err != nil {
			return err
		}
		answer, err := k.api.GetWindow(c, &pb.GetWindowRequest{Node: "go-window", Limit: 2})
		if err != nil {
			return err
		}
		return expect(answer.Known && answer.Events == 3 && len(answer.Interactions) == 2 &&
			answer.Interactions[0].Peer == "go-peer-2", "%v", answer)
	}},
	{"unary_explain", func(c context.Context, k *client) error {
		answer, err := k.api.Explain(c, &pb.ExplainRequest{Src: "a", Dst: "b", PerHead: true})
		if err != nil {
			return err
		}
		sum := 0.0
		for _, one := range answer.Tokens {
			sum += one.Attention
		}
		return expect(sum > 0.999 && sum < 1.001, "the shares of attention add up to %v", sum)
	}},
	{"server_stream_scores", func(c context.Context, k *client) error {
		list, err := events(c, k, "go-scores", 5)
		if err != nil {
			return err
		}
		stream, err := k.api.SubscribeScores(c, &pb.SubscribeScoresRequest{Nodes: []string{"go-scores"}})
		if err != nil {
			return err
		}
		if _, err = stream.Header(); err != nil { // subscribed from here on
			return err
		}
		if _, err = ingest(c, k, list); err != nil {
			return err
		}
		for i := range list {
			message, err := stream.Recv()
			if err != nil {
				return err
			}
			if message.Score.Dst != list[i].GetDst() || message.Dropped != 0 {
				return fmt.Errorf("%v", message)
			}
		}
		return nil
	}},
	{"server_stream_predictions", func(c context.Context, k *client) error {
		list, err := events(c, k, "go-predictions", 2)
		if err != nil {
			return err
		}
		stream, err := k.api.SubscribePredictions(c, &pb.SubscribePredictionsRequest{Nodes: []string{"go-predictions"}})
		if err != nil {
			return err
		}
		if _, err = stream.Header(); err != nil {
			return err
		}
		if _, err = ingest(c, k, list); err != nil {
			return err
		}
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		return expect(message.Prediction.Node == "go-predictions" && len(message.Prediction.Candidates) > 0, "%v", message)
	}},
	{"client_stream_ingest", func(c context.Context, k *client) error {
		list, err := events(c, k, "go-ingest", 300)
		if err != nil {
			return err
		}
		answer, err := ingest(c, k, list[:100], list[100:200], list[200:])
		if err != nil {
			return err
		}
		if answer.Accepted != 300 || answer.Rejected != 0 {
			return fmt.Errorf("%v", answer)
		}
		answer, err = ingest(c, k, []*pb.EdgeEvent{list[0], event("", "no source", 1)})
		if err != nil {
			return err
		}
		return expect(answer.Accepted == 1 && answer.Rejected == 1 && strings.Contains(answer.FirstReason, "src"), "%v", answer)
	}},
	{"deadline_exceeded", func(c context.Context, k *client) error {
		short, cancel := context.WithTimeout(c, 300*time.Millisecond)
		defer cancel()
		stream, err := k.api.SubscribeScores(short, &pb.SubscribeScoresRequest{Nodes: []string{"nobody at all"}})
		if err == nil {
			_, err = stream.Recv()
		}
		if err = expectCode(err, codes.DeadlineExceeded, ""); err != nil {
			return err
		}
		shorter, cancel := context.WithTimeout(c, 5*time.Millisecond)
		defer cancel()
		_, err = k.api.Score(shorter, pairs(10000, 100))
		return expectCode(err, codes.DeadlineExceeded, "")
	}},
	{"client_cancel", func(c context.Context, k *client) error {
		ours, cancel := context.WithCancel(c)
		stream, err := k.api.SubscribeScores(ours, &pb.SubscribeScoresRequest{})
		if err != nil {
			cancel()
			return err
		}
		if _, err = stream.Header(); err != nil {
			cancel()
			return err
		}
		cancel()
		for err == nil { // what came before is still read
			_, err = stream.Recv()
		}
		if err = expectCode(err, codes.Canceled, ""); err != nil {
			return err
		}
		_, err = k.api.GetModel(c, &pb.GetModelRequest{})
		return err
	}},
	{"message_near_the_limit", func(c context.Context, k *client) error {
		answer, err := k.api.Score(c, pairs(10000, nameNearLimit))
		if err != nil {
			return err
		}
		return expect(len(answer.Scores) == 10000, "%d scores", len(answer.Scores))
	}},
	{"message_above_the_limit", func(c context.Context, k *client) error {
		_, err := k.api.Score(c, pairs(10000, nameNearLimit+1))
		return expectCode(err, codes.ResourceExhausted, "limit")
	}},
	{"invalid_argument", func(c context.Context, k *client) error {
		_, err := k.api.Score(c, &pb.ScoreRequest{})
		return expectCode(err, codes.InvalidArgument, "pairs")
	}},
	{"not_found", func(c context.Context, k *client) error {
		_, err := k.health.Check(c, &health.HealthCheckRequest{Service: "other"})
		return expectCode(err, codes.NotFound, "no such service")
	}},
	{"unimplemented", func(c context.Context, k *client) error {
		err := k.channel.Invoke(c, "/driftline.v1.LinkPrediction/Nothing", &emptypb.Empty{}, &emptypb.Empty{})
		return expectCode(err, codes.Unimplemented, "Nothing")
	}},
	{"gzip", func(c context.Context, k *client) error {
		answer, err := k.api.Score(c, pairs(1000, 100), grpc.UseCompressor(gzip.Name))
		if err != nil {
			return err
		}
		if len(answer.Scores) != 1000 {
			return fmt.Errorf("%d scores", len(answer.Scores))
		}
		_, err = k.api.Score(c, pairs(10000, nameNearLimit+1), grpc.UseCompressor(gzip.Name))
		return expectCode(err, codes.ResourceExhausted, "limit")
	}},
	{"health", func(c context.Context, k *client) error {
		answer, err := k.health.Check(c, &health.HealthCheckRequest{Service: service})
		if err != nil {
			return err
		}
		watch, err := k.health.Watch(c, &health.HealthCheckRequest{})
		if err != nil {
			return err
		}
		first, err := watch.Recv()
		if err != nil {
			return err
		}
		return expect(answer.Status == health.HealthCheckResponse_SERVING && first.Status == answer.Status, "%v", first)
	}},
	{"reflection", func(c context.Context, k *client) error {
		stream, err := reflection.NewServerReflectionClient(k.channel).ServerReflectionInfo(c)
		if err != nil {
			return err
		}
		err = stream.Send(&reflection.ServerReflectionRequest{
			MessageRequest: &reflection.ServerReflectionRequest_ListServices{}})
		if err != nil {
			return err
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		stream.CloseSend()
		if _, err = stream.Recv(); !errors.Is(err, io.EOF) {
			return err
		}
		return expect(strings.Contains(answer.String(), service), "%v", answer)
	}},
}

func withToken(c context.Context, text string) context.Context {
	return metadata.AppendToOutgoingContext(c, "authorization", "Bearer "+text)
}

var tokens = []check{
	{"unauthenticated", func(c context.Context, k *client) error {
		for _, one := range []context.Context{c, withToken(c, "wrong-wrong-wrong-wrong")} {
			_, err := k.api.GetModel(one, &pb.GetModelRequest{})
			if err = expectCode(err, codes.Unauthenticated, ""); err != nil {
				return err
			}
		}
		return nil
	}},
	{"permission_denied", func(c context.Context, k *client) error {
		_, err := ingest(withToken(c, *reader), k, []*pb.EdgeEvent{event("a", "b", 1)})
		return expectCode(err, codes.PermissionDenied, "")
	}},
	{"token_is_taken", func(c context.Context, k *client) error {
		for _, one := range []string{*reader, *token} {
			if _, err := k.api.GetModel(withToken(c, one), &pb.GetModelRequest{}); err != nil {
				return err
			}
		}
		return nil
	}},
}

func encrypted(ca, own string) (credentials.TransportCredentials, error) {
	pem, err := os.ReadFile(filepath.Join(*certs, ca+".pem"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(pem)
	if own != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(*certs, own+".pem"), filepath.Join(*certs, own+".key"))
		if err != nil {
			return nil, err
		}
		// Sent even if the server names other authorities.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return credentials.NewTLS(config), nil
}

// asks once with these credentials and wants an answer, or UNAVAILABLE.
func ask(how credentials.TransportCredentials, wanted bool) func(context.Context, *client) error {
	return func(c context.Context, _ *client) error {
		k, err := dial(how)
		if err != nil {
			return err
		}
		defer k.channel.Close()
		_, err = k.api.GetModel(c, &pb.GetModelRequest{})
		if wanted {
			return err
		}
		return expectCode(err, codes.Unavailable, "")
	}
}

func askWith(ca, own string, wanted bool) func(context.Context, *client) error {
	return func(c context.Context, k *client) error {
		how, err := encrypted(ca, own)
		if err != nil {
			return err
		}
		return ask(how, wanted)(c, k)
	}
}

var modes = map[string][]check{
	"plain":  plain,
	"tokens": tokens,
	"tls": {
		{"tls", askWith("ca", "", true)},
		{"foreign_authority_is_refused", askWith("foreign", "", false)},
		{"plain_text_is_refused", ask(insecure.NewCredentials(), false)},
	},
	"mtls": {
		{"mtls", askWith("ca", "client", true)},
		{"no_certificate_is_refused", askWith("ca", "", false)},
		{"foreign_certificate_is_refused", askWith("ca", "stranger", false)},
		{"expired_certificate_is_refused", askWith("ca", "expired", false)},
	},
}

func main() {
	flag.Parse()
	fmt.Printf("grpc-go %s, %s\n", grpc.Version, runtime.Version())
	k, err := dial(insecure.NewCredentials())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	for _, one := range modes[*mode] {
		c, cancel := context.WithTimeout(context.Background(), patient)
		err := one.run(c, k)
		cancel()
		why := ""
		if err != nil {
			why = err.Error()
		}
		out.Encode(map[string]any{"name": one.name, "ok": err == nil, "why": why})
	}
}
