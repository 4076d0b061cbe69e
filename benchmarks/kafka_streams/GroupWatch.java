import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;

/**
 * Watches the members of a group. Arguments: brokers, group, protocol ("classic" or "streams"); then settings of the
 * group as name=value. Whenever the members have changed, it prints a line of JSON with the number of each instance's members,
 * one for each stream thread: so it says when the broker has noticed that an instance is lost. It ends with its standard input.
 */
public class GroupWatch {
    static final long LOOK_MS = 50;
    static final String THREAD = "-StreamThread-"; // behind the instance's client id, in those of its members

    static void configure(Admin admin, String group, List<String> settings) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (String setting : settings) {
            String[] parts = setting.split("=", 2);
            changes.add(new AlterConfigOp(new ConfigEntry(parts[0], parts[1]), AlterConfigOp.OpType.SET));
        }
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes)).all().get();
    }

    static Stream<String> clients(Admin admin, String group, boolean streams) throws Exception {
        try {
            if (streams) {
                return admin.describeStreamsGroups(List.of(group)).all().get().get(group)
                        .members().stream().map(StreamsGroupMemberDescription::clientId);
            }
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group)
                    .members().stream().map(MemberDescription::clientId);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof GroupIdNotFoundException) {
                return Stream.of();
            }
            throw error;
        }
    }

    static String members(Admin admin, String group, boolean streams) throws Exception {
        return clients(admin, group, streams)
                .collect(Collectors.groupingBy(
                        id -> id.contains(THREAD) ? id.substring(0, id.indexOf(THREAD)) : id,
                        TreeMap::new, Collectors.counting()))
                .entrySet().stream().map(each -> "\"" + each.getKey() + "\": " + each.getValue())
                .collect(Collectors.joining(", ", "{", "}"));
    }

    public static void main(String[] arguments) throws Exception {
        Instance.endWithInput();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            if (arguments.length > 3) {
                configure(admin, arguments[1], List.of(arguments).subList(3, arguments.length));
            }
            String before = "";
            while (true) {
                String now = members(admin, arguments[1], arguments[2].equals("streams"));
                if (!now.equals(before)) {
                    System.out.println("{\"at\": " + System.currentTimeMillis() / 1e3 + ", \"members\": " + now + "}");
                    before = now;
                }
                Thread.sleep(LOOK_MS);
            }
        }
    }
}
